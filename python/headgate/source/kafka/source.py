"""The source of Kafka's records."""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

import pyarrow as pa

from headgate._kafka import LOG, checked_properties, checked_servers, error_text
from headgate.errors import SourceError, UnknownColumnError
from headgate.source.api import (
    Boundedness,
    JsonSerializer,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.arguments import Texts, duration, refuse, whole_number
from headgate.source.kafka.enumerator import KafkaEnumerator
from headgate.source.kafka.offsets import KafkaOffsets, OffsetSettings
from headgate.source.kafka.reader import KafkaReader
from headgate.source.kafka.records import SCHEMA
from headgate.source.kafka.split import KafkaCheckpoint, KafkaSplit, Partition, lost

#: Properties that a caller cannot choose, and what sets them.
_OURS: Final = {
    "bootstrap.servers": "bootstrap_servers sets it",
    "group.id": "group_id sets it",
    "enable.auto.commit": "offsets are committed when a checkpoint is complete",
    "enable.auto.offset.store": "offsets are committed when a checkpoint is complete",
    "auto.offset.reset": "a lost offset is an error",
    "enable.partition.eof": "until= sets it",
}
_PREFIX: Final = "kafka."
_OPTIONS: Final = (
    *("bootstrapServers", "topics", "topicPattern", "groupId", "startingOffsets"),
    *("stoppingOffsets", "discoveryInterval", "includeHeaders", "batchRows", "timeout"),
)


class KafkaSource(Source[pa.RecordBatch, KafkaSplit, KafkaCheckpoint]):
    """The records of topics. A split is a partition, and its state is the offset to read next.

    A record is a batch of records of one partition, with the columns ``key``, ``value`` (binary),
    ``topic``, ``partition``, ``offset``, ``timestamp`` (ms, UTC), ``timestamp_type`` (0: the producer's
    time, 1: the broker's), and ``headers`` if asked for. Its timestamps are the source's own, so a
    watermark strategy needs no assigner.

    Where to start is decided once, when the partitions are listed first. Partitions that are found
    later are read from their first record. An offset that the broker does not have any more is an
    error; no record is skipped silently. A topic that was deleted and made again is not noticed if it
    has records at the offsets to read.

    Args:
        bootstrap_servers: addresses of brokers, separated by commas.
        topics: a name, several, or a compiled pattern that the whole name of a topic must match.
        group_id: the consumer group to which the offsets of complete checkpoints are committed; None
            to commit nothing. Partitions are never assigned by the group.
        start: the offsets to start from.
        until: the offsets to stop at; None for a source without end. They are found out when the
            partitions are listed.
        discovery_interval: seconds (or ``"5m"``) after which partitions are listed again; None to list them at
            the start only.
        headers: True for a column of headers.
        batch_rows: rows in a batch, at most.
        properties: further properties of librdkafka, such as ``{"security.protocol": "SSL"}``.
            ``isolation.level`` is ``read_committed`` unless it is set.
        timeout: longest wait for an answer about topics and offsets, in seconds.

    Raises:
        OptionError: an argument is outside its limits, or a property is set by another argument.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        group_id: str | None = None,
        start: KafkaOffsets | None = None,
        until: KafkaOffsets | None = None,
        discovery_interval: str | float | None = None,
        headers: bool = False,
        batch_rows: int = 16_384,
        properties: Mapping[str, Any] | None = None,
        timeout: str | float = 30.0,
    ) -> None:
        self._servers = checked_servers(bootstrap_servers)
        self._topics = _checked_topics(topics)
        self._group = group_id
        self._start = KafkaOffsets.earliest() if start is None else start
        self._until = until
        self._until_now = False
        for name, offsets in (("start", self._start), ("until", until)):
            if offsets is not None and not isinstance(offsets, KafkaOffsets):
                raise refuse(name, offsets, "are no offsets", "KafkaOffsets.earliest()")
            if offsets is not None and offsets.kind == "committed" and not group_id:
                raise refuse("group_id", group_id, f"is needed for {name}=", "the name of a group")
        self._interval = None
        if discovery_interval is not None:
            self._interval = duration("discovery_interval", discovery_interval, 0.01)
            if until is not None:
                raise refuse(
                    "discovery_interval",
                    discovery_interval,
                    "contradicts until=",
                    "None with until=",
                )
        self._batch_rows = whole_number("batch_rows", batch_rows, 1, 1_000_000)
        self._properties = checked_properties(properties or {}, _OURS)
        self._timeout = duration("timeout", timeout, 0.1)
        self._schema = SCHEMA if headers else SCHEMA.remove(SCHEMA.get_field_index("headers"))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source of ``bootstrapServers`` and ``topics`` (with commas) or ``topicPattern``.

        Optional: ``groupId``, ``startingOffsets``, ``stoppingOffsets`` (see
        :meth:`KafkaOffsets.from_text`), ``discoveryInterval``, ``includeHeaders``, ``batchRows``, ``timeout``; and
        properties of librdkafka after ``kafka.``, such as ``kafka.security.protocol``.

        Raises:
            OptionError: an option is unknown, missing or malformed.
        """
        plain = {n: v for n, v in options.items() if not n.casefold().startswith(_PREFIX)}
        texts = Texts(cls.__name__, plain, _OPTIONS)
        pattern, topics = (
            texts.get("topicPattern", _pattern, None, "a pattern"),
            texts.texts("topics"),
        )
        if (pattern is None) == (topics is None):
            raise refuse("topics", topics, "and topicPattern", "one of the two", 'topics="orders"')
        takes = 'earliest, latest, committed, time:2026-01-01, {"orders": {"0": 17}}'
        return cls(
            texts.text("bootstrapServers"),
            pattern or topics or (),
            group_id=texts.text("groupId"),
            start=texts.get("startingOffsets", KafkaOffsets.from_text, None, takes),
            until=texts.get("stoppingOffsets", KafkaOffsets.from_text, None, takes),
            discovery_interval=texts.text("discoveryInterval"),
            headers=texts.boolean("includeHeaders", False),
            batch_rows=texts.integer("batchRows", 16_384),
            properties={n[len(_PREFIX) :].lower(): v for n, v in options.items() if n not in plain},
            timeout=texts.text("timeout", "30s"),
        )

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` with ``until``."""
        is_bounded = self._until is not None or self._until_now
        return Boundedness.BOUNDED if is_bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def until_now(self) -> KafkaSource:
        """Return this source, which ends at the last records of the partitions when a job starts; the next job goes on there.

        A source that ends at other offsets is its own result.
        """
        if self._until is not None and self._until.kind != "latest":
            return self
        chosen = copy.copy(self)
        chosen._until, chosen._interval, chosen._until_now = None, None, True  # noqa: SLF001
        return chosen

    @property
    def has_endless_splits(self) -> bool:
        """True without ``until``."""
        return self._until is None

    @property
    def schema(self) -> pa.Schema:
        """The columns that were asked for."""
        return self._schema

    @property
    def name(self) -> str:
        """The topics, such as ``KafkaSource(orders)``."""
        topics = self._topics
        return f"KafkaSource({topics.pattern if isinstance(topics, re.Pattern) else ', '.join(topics)})"

    def create_enumerator(
        self, context: SplitEnumeratorContext[KafkaSplit]
    ) -> SplitEnumerator[KafkaSplit, KafkaCheckpoint]:
        """Return an enumerator that has listed nothing yet."""
        return self.restore_enumerator(context, KafkaCheckpoint())

    def restore_enumerator(
        self, context: SplitEnumeratorContext[KafkaSplit], checkpoint: KafkaCheckpoint
    ) -> SplitEnumerator[KafkaSplit, KafkaCheckpoint]:
        """Return an enumerator that knows the partitions of a checkpoint."""
        is_bounded = self._until is not None
        return KafkaEnumerator(
            context, checkpoint, self._discover, self._interval, is_bounded=is_bounded
        )

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, KafkaSplit]:
        """Return a reader with a consumer of its own."""
        settings = {
            "isolation.level": "read_committed",
            **self._clients(),
            # librdkafka refuses to work without a group, also if nothing is committed.
            "group.id": self._group or f"headgate-{secrets.token_hex(8)}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": self.boundedness is Boundedness.BOUNDED,
        }
        commits = self._group is not None
        ends = self._with_ends if self._until_now else None
        return KafkaReader(settings, self._schema, self._batch_rows, commits, context, ends)

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[KafkaSplit]:
        """JSON."""
        return JsonSerializer(KafkaSplit)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[KafkaCheckpoint]:
        """JSON."""
        return JsonSerializer(KafkaCheckpoint)

    def with_columns(self, columns: Sequence[str]) -> KafkaSource | None:
        """Return this source with some of its columns; None when none is asked for.

        Raises:
            UnknownColumnError: it has no such column.
        """
        unknown = [name for name in columns if name not in self._schema.names]
        if unknown:
            have = ", ".join(self._schema.names)
            raise UnknownColumnError(
                f"{self.name} has no column {unknown[0]!r}", asked=unknown[0], have=have
            )
        if not columns:
            return None
        chosen = copy.copy(self)
        chosen._schema = pa.schema([self._schema.field(name) for name in columns])  # noqa: SLF001
        return chosen

    def _clients(self) -> dict[str, Any]:
        return {**self._properties, "bootstrap.servers": self._servers}

    def _discover(self, listed: frozenset[Partition], is_first: bool) -> list[KafkaSplit]:
        """List the partitions, and find out the offsets of new ones; blocks."""
        admin = self._admin()
        new = [key for key in self._partitions(admin) if key not in listed]
        start = self._start if is_first else KafkaOffsets.earliest()
        starts = start.find(admin, self._group, new, self._settings)
        splits = [KafkaSplit(*key, starts[key]) for key in new]
        if self._until is None:
            return splits
        self._check_starts(admin, splits)
        ends = self._until.find(admin, self._group, new, self._settings)
        return [replace(split, end=ends[split.key]) for split in splits]

    def _with_ends(self, splits: Sequence[KafkaSplit]) -> list[KafkaSplit]:
        """Return partitions that end at their last records of now; blocks."""
        admin = self._admin()
        self._check_starts(admin, splits)
        latest = KafkaOffsets.latest()
        ends = latest.find(admin, None, [split.key for split in splits], self._settings)
        return [replace(split, end=ends[split.key]) for split in splits]

    def _check_starts(self, admin: Any, splits: Sequence[KafkaSplit]) -> None:
        """Check that no partition ends before the offset to read first, as one that was made anew does.

        Raises:
            SourceError: one does. A read that never ends has the same error of the broker.
        """
        settings = replace(self._settings, is_committed_only=False)
        latest = KafkaOffsets.latest()
        logs = latest.find(admin, None, [split.key for split in splits], settings)
        for split in splits:
            if split.position > (end := logs[split.key]):
                where, name = f"partition {split.split_id}", "OFFSET_OUT_OF_RANGE"
                cause = f"its log ends at offset {end}, so the topic may have been made anew"
                raise lost(where, split.position, cause, [split.split_id], name)

    @property
    def _settings(self) -> OffsetSettings:
        level = self._properties.get("isolation.level", "read_committed")
        return OffsetSettings(self._timeout, level == "read_committed")

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - optional

        foreign = ("isolation.level", "fetch.", "max.partition.fetch", "queued.", "check.crcs")
        shared = {n: v for n, v in self._clients().items() if not n.startswith(foreign)}
        return AdminClient(shared, logger=LOG)

    def _partitions(self, admin: Any) -> list[Partition]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

        try:
            # Of all topics: asking for one by name may create it.
            topics = admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise SourceError(
                f"the topics of {self._servers} cannot be listed: {error_text(error)}",
                asked=self.name,
                remedy="check bootstrap_servers and the network · a longer timeout",
            ) from error
        if isinstance(self._topics, re.Pattern):
            wanted = [name for name in topics if self._topics.fullmatch(name)]
        else:
            wanted = [name for name in self._topics if name in topics]
            missing = [name for name in self._topics if name not in topics]
            if missing:
                raise SourceError(
                    f"there is no topic {missing[0]!r} at {self._servers}",
                    asked=self.name,
                    remedy="create it · check its name",
                    details={"missing": missing},
                )
        broken = next((topics[name] for name in wanted if topics[name].error is not None), None)
        if broken is not None:
            raise SourceError(f"topic {broken.topic!r} cannot be read: {error_text(broken.error)}")
        return sorted((name, number) for name in wanted for number in topics[name].partitions)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error


def _checked_topics(topics: object) -> tuple[str, ...] | re.Pattern[str]:
    if isinstance(topics, re.Pattern):
        return topics
    names = [topics] if isinstance(topics, str) else topics
    takes = 'a name, several, or re.compile("orders-.*")'
    if not isinstance(names, Sequence) or not names:
        raise refuse("topics", topics, "names no topic", takes)
    if not all(isinstance(name, str) and name for name in names):
        raise refuse("topics", topics, "has a name that is no text", takes)
    return tuple(dict.fromkeys(names))
