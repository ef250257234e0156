"""The sink that writes records of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate._kafka import checked_properties, checked_servers
from headgate._units import parse_duration
from headgate.errors import OptionError
from headgate.sink.api import (
    DELIVERIES,
    CommitterContext,
    Delivery,
    Sink,
    SinkCommitter,
    SinkWriter,
    WriterContext,
)
from headgate.sink.file_sink import FileSink
from headgate.sink.file_writer import FileWriter
from headgate.sink.kafka.committer import KafkaCommitter
from headgate.sink.kafka.producing import Producing, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_OURS: Final = {
    "bootstrap.servers": "bootstrap_servers sets it",
    "transactional.id": "it is made of the names of job and topic",
    "enable.idempotence": "it is always on, so that a retry repeats no record",
    "acks": "it is always all",
}
#: Largest size of a staged file, which the committer reads into memory.
_STAGED: Final = "64m"


@dataclass(frozen=True, slots=True)
class KafkaSink(Sink):
    """Writes each row as a record.

    The batches have a column ``value`` (binary or string; null for a tombstone), and may have ``key``, ``topic``,
    ``partition``, ``timestamp`` (of any unit, or int64 of ms since 1970) and ``headers`` (a list of
    structs of ``key`` and ``value``), as :class:`~headgate.source.kafka.KafkaSource` reads them.

    With a column ``_change_type``, for a compacted topic, the last row of each ``key`` of a batch is written: ``"delete"`` and
    ``"update_before"`` as a tombstone. Rows of a key must come from one task, as after ``key_by()``.

    With ``delivery="at_least_once"`` the tasks produce, and a checkpoint waits until brokers have all
    rows; a restart repeats those since the last checkpoint. With ``"exactly_once"`` the tasks stage their
    rows as Arrow files, and the committer produces those of a complete checkpoint in one transaction;
    consumers must read with ``isolation.level=read_committed``. A checkpoint's rows all become visible together.

    Args:
        topic: the topic of rows that name none.
        bootstrap_servers: addresses of brokers, separated by commas.
        delivery: ``"at_least_once"`` or ``"exactly_once"``.
        staging: a folder that all tasks and the coordinator share, for ``"exactly_once"``: a local path, a URI, or a
            path of ``filesystem``.
        filesystem: any file system of pyarrow; None for the path's own.
        properties: further properties of librdkafka, such as ``{"compression.type": "zstd"}``.
        timeout: longest wait of the committer for an answer of a broker, in seconds or as ``"1m"``.

    Raises:
        OptionError: an argument has an invalid value, or a property is set by another argument.
    """

    topic: str
    bootstrap_servers: str
    delivery: Delivery = field(default="at_least_once", kw_only=True)
    staging: str | None = field(default=None, kw_only=True)
    filesystem: fs.FileSystem | None = field(default=None, kw_only=True)
    properties: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    timeout: float | str = field(default="60s", kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments."""
        checked_servers(self.bootstrap_servers)
        topic: Any = self.topic
        if not isinstance(topic, str) or not topic:
            raise OptionError(f"topic={topic!r} is no name", remedy='topic="orders"')
        if self.delivery not in DELIVERIES:
            raise OptionError(
                f"delivery={self.delivery!r} is none of {', '.join(DELIVERIES)}",
                remedy=" · ".join(f'delivery="{delivery}"' for delivery in DELIVERIES),
            )
        if (self.staging is None) != (self.delivery == "at_least_once"):
            raise OptionError(
                f'staging={self.staging!r} does not go with delivery="{self.delivery}"',
                have="exactly_once stages rows in a folder, at_least_once does not",
                remedy='staging="/data/staging" with delivery="exactly_once"',
            )
        checked_properties(self.properties, _OURS)
        try:
            parse_duration(self.timeout)
        except (TypeError, ValueError) as error:
            raise OptionError(f"timeout={self.timeout!r} is {error}") from error

    @property
    def name(self) -> str:
        """The topic."""
        return f"KafkaSink({self.topic})"

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse columns that no record has.

        Raises:
            SchemaMismatchError: there is no column ``value``, an unknown one, or changes without a column ``key``.
        """
        check_schema(schema)

    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> SinkWriter:
        """Return a writer that produces, or one that stages.

        Raises:
            SchemaMismatchError: the schema has no column ``value``, or one that no record has.
        """
        if schema is not None:
            check_schema(schema)
        if self.delivery == "at_least_once":
            return ProducingWriter(self.topic, self._settings())
        files = self._files()
        return CheckedWriter(files, files.storage(), context, schema)

    def create_committer(self, context: CommitterContext) -> SinkCommitter:
        """Return the committer, which does something with ``"exactly_once"`` only."""
        if self.delivery == "at_least_once":
            return SinkCommitter()
        seconds, storage = parse_duration(self.timeout), self._files().storage()
        return KafkaCommitter(self.topic, self._settings(), storage, context.job, seconds)

    def _settings(self) -> dict[str, Any]:
        ours = {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True}
        return {**self.properties, **ours}

    def _files(self) -> FileSink:
        staging: Any = self.staging
        options: dict[str, Any] = {"mode": "append", "target_file_size": _STAGED}
        return FileSink(staging, format="arrow", filesystem=self.filesystem, **options)


class ProducingWriter(SinkWriter):
    """Produces rows at once, and waits for the brokers at each checkpoint.

    Args:
        topic: the topic of rows that name none.
        properties: of librdkafka.
    """

    def __init__(self, topic: str, properties: Mapping[str, Any]) -> None:
        self._topic = topic
        self._producing = Producing(properties)
        self._schema: pa.Schema | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Produce the rows; see :meth:`SinkWriter.write`."""
        if self._schema is None or not batch.schema.equals(self._schema):
            check_schema(batch.schema)
        self._schema = batch.schema
        self._producing.produce(batch, self._topic)

    def prepare_commit(self, checkpoint_id: int) -> None:
        """Wait until the brokers have all rows.

        Raises:
            SinkError: a row was not delivered.
        """
        del checkpoint_id
        self._producing.flush()

    def close(self) -> None:
        """Drop the rows that no broker has, and close the connections."""
        self._producing.close()


class CheckedWriter(FileWriter):
    """Stages rows that can be records, with checksums of the files."""

    has_checksums = True
    keeps_columns = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch.

        Raises:
            SchemaMismatchError: the batch has no column ``value``, or one that no record has.
        """
        if self._schema is None:
            check_schema(batch.schema)
        super().write(batch)
