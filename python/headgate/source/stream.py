"""A source of Arrow batches from a TCP connection."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import SchemaMismatchError, SourceError
from headgate.source.api import (
    Boundedness,
    JsonSerializer,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.arguments import Texts, duration, refuse, whole_number
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)
from headgate.source.files.options import schema_of
from headgate.source.sequential import BatchEmitter, BatchSourceReader, Positioned

_OPTIONS: Final = ("host", "port", "schema", "reconnect", "retryInterval", "connectTimeout")

#: Limit of received batches that were not fetched yet; beyond it TCP slows the sender down.
_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class SocketSplit(SourceSplit):
    """The connection; ``position`` counts rows, but a restart cannot continue from it."""

    host: str
    port: int
    position: int = 0

    @property
    def split_id(self) -> str:
        """The address."""
        return f"tcp://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SocketCheckpoint:
    """The state of the enumerator.

    Attributes:
        assigned: True while a reader has the connection.
    """

    assigned: bool = False


class SocketSource(Source[pa.RecordBatch, SocketSplit, SocketCheckpoint]):
    """Arrow IPC streams from a TCP server, one after another.

    One reader connects; the others end at once. **At most once:** a socket cannot be read again, so
    rows in flight are lost when a connection breaks, or a job fails or restarts.

    Args:
        host: the server's host.
        port: the server's port.
        schema: the schema that every stream must have.
        reconnect: True to connect again whenever a stream ends or breaks. False to end with the
            first stream; a broken stream is an error then.
        retry_interval: seconds (or a duration such as ``"1s"``) between two attempts to connect.
        connect_timeout: longest time to establish a connection, in seconds.

    Raises:
        OptionError: an argument is outside its limits.
    """

    def __init__(
        self,
        host: str,
        port: int,
        schema: pa.Schema,
        *,
        reconnect: bool = True,
        retry_interval: str | float = 1.0,
        connect_timeout: str | float = 10.0,
    ) -> None:
        if not host:
            raise refuse("host", host, "is empty", "a name or an address")
        self._host = host
        self._port = whole_number("port", port, 1, 65_535)
        if not isinstance(schema, pa.Schema):
            raise refuse(
                "schema", schema, "is no Arrow schema", 'pyarrow.schema([("id", "int64")])'
            )
        self._schema = schema.remove_metadata()
        self._reconnect = reconnect
        self._retry_interval = duration("retry_interval", retry_interval, 0.001)
        self._connect_timeout = duration("connect_timeout", connect_timeout, 0.001)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source for ``host``, ``port`` and ``schema`` (``"id int64, name string"``).

        Optional: ``reconnect``, ``retryInterval`` and ``connectTimeout``.

        Raises:
            OptionError: an option is unknown, missing or malformed.
        """
        texts = Texts(cls.__name__, options, _OPTIONS)
        host, port = texts.text("host"), texts.integer("port")
        schema = texts.get("schema", schema_of, None, '"id int64, name string"')
        examples = {"host": '"127.0.0.1"', "port": '"5000"', "schema": '"id long, name string"'}
        for (name, example), value in zip(examples.items(), (host, port, schema), strict=True):
            if value is None:
                raise refuse(name, None, "is not given", f"a text such as {example}")
        return cls(
            host,
            port,
            schema,
            reconnect=texts.boolean("reconnect", True),
            retry_interval=texts.text("retryInterval", "1s"),
            connect_timeout=texts.text("connectTimeout", "10s"),
        )

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` with ``reconnect=False``."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._reconnect else Boundedness.BOUNDED

    @property
    def has_endless_splits(self) -> bool:
        """True with ``reconnect``."""
        return self._reconnect

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def name(self) -> str:
        """The address."""
        return f"SocketSource({self._host}:{self._port})"

    def create_enumerator(
        self, context: SplitEnumeratorContext[SocketSplit]
    ) -> SplitEnumerator[SocketSplit, SocketCheckpoint]:
        """Return an enumerator of one split."""
        return self.restore_enumerator(context, SocketCheckpoint())

    def restore_enumerator(
        self, context: SplitEnumeratorContext[SocketSplit], checkpoint: SocketCheckpoint
    ) -> SplitEnumerator[SocketSplit, SocketCheckpoint]:
        """Return an enumerator that continues from a checkpoint."""
        return SocketEnumerator(context, SocketSplit(self._host, self._port), checkpoint.assigned)

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, SocketSplit]:
        """Return a reader, which connects when it gets the split."""
        return BatchSourceReader(self._split_reader, context, BatchEmitter())

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[SocketSplit]:
        """JSON."""
        return JsonSerializer(SocketSplit)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[SocketCheckpoint]:
        """JSON."""
        return JsonSerializer(SocketCheckpoint)

    def _split_reader(self) -> SocketSplitReader:
        retry = self._retry_interval if self._reconnect else None
        return SocketSplitReader(self._schema, retry, self._connect_timeout)


class SocketEnumerator(SplitEnumerator[SocketSplit, SocketCheckpoint]):
    """Assigns the connection to the first reader, and to another one if that reader is lost."""

    def __init__(
        self,
        context: SplitEnumeratorContext[SocketSplit],
        split: SocketSplit,
        is_assigned: bool,
    ) -> None:
        self._context, self._split, self._is_assigned = context, split, is_assigned

    def start(self) -> None:
        """Do nothing."""

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:  # noqa: ARG002 - any host
        """Assign the connection, or signal that there is no split."""
        if self._is_assigned:
            self._context.signal_no_more_splits(subtask_id)
        else:
            self._is_assigned = True
            self._context.assign_split(self._split, subtask_id)

    def add_splits_back(self, splits: Sequence[SocketSplit], subtask_id: int) -> None:  # noqa: ARG002 - any reader
        """Keep the connection for the next request."""
        if splits:
            self._is_assigned = False

    def add_reader(self, subtask_id: int) -> None:
        """Do nothing until the reader requests a split."""

    def snapshot_state(self, checkpoint_id: int) -> SocketCheckpoint:  # noqa: ARG002 - unused
        """Return the state."""
        return SocketCheckpoint(self._is_assigned)

    @property
    def total_splits(self) -> int:
        """One."""
        return 1

    def close(self) -> None:
        """Do nothing."""


class SocketSplitReader(SplitReader[Positioned, SocketSplit]):
    """Receives in its own thread, so that a wake-up can interrupt a fetch while a batch arrives.

    Args:
        schema: the schema that every stream must have.
        retry: seconds before the next connection; None to end with the stream.
        timeout: longest time to establish a connection, in seconds.
    """

    def __init__(self, schema: pa.Schema, retry: float | None, timeout: float) -> None:
        self._schema, self._retry, self._timeout = schema, retry, timeout
        self._split: SocketSplit | None = None
        self._rows = 0
        self._received: deque[pa.RecordBatch] = deque()
        self._changed = threading.Condition()
        self._is_paused = False
        self._is_woken = False
        self._is_over = False
        self._is_closed = False
        self._error: BaseException | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def fetch(self) -> RecordsWithSplitIds[Positioned]:
        """Return the next batch, or nothing after a wake-up."""
        with self._changed:
            self._changed.wait_for(self._has_something)
            self._is_woken = False
            split = self._split
            if split is None or self._is_paused:
                return RecordsBySplits({})
            if self._received:
                batch = self._received.popleft()
                self._changed.notify_all()
                self._rows += batch.num_rows
                return RecordsBySplits({split.split_id: [(batch, self._rows)]})
            if self._error is not None:
                raise self._error
            if self._is_over:
                self._split = None
                return RecordsBySplits({}, [split.split_id])
            return RecordsBySplits({})

    def handle_splits_changes(self, change: SplitsChange[SocketSplit]) -> None:
        """Connect to a split's address, or disconnect."""
        match change:
            case SplitsAddition(splits=(split,)) if self._split is None and self._thread is None:
                self._split, self._rows = split, split.position
                name = f"headgate-fetcher-{split.split_id}"
                self._thread = threading.Thread(
                    target=self._receive, args=(split,), name=name, daemon=True
                )
                self._thread.start()
            case SplitsRemoval():
                self._split = None
                self.close()
            case _:
                raise SourceError(
                    "a socket is one split, which can be added only once",
                    asked=", ".join(split.split_id for split in change.splits),
                    have="no split" if self._split is None else self._split.split_id,
                )

    def wake_up(self) -> None:
        """Interrupt a waiting fetch."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SocketSplit], splits_to_resume: Sequence[SocketSplit]
    ) -> None:
        """Pause and resume; meanwhile the server's data waits in its socket buffers."""
        with self._changed:
            self._is_paused = (self._is_paused or bool(splits_to_pause)) and not splits_to_resume

    def close(self) -> None:
        """Disconnect and wait for the receiving thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(self._timeout + 1)

    def _has_something(self) -> bool:
        if self._is_woken or self._split is None:
            return True
        return not self._is_paused and bool(self._received or self._error or self._is_over)

    def _receive(self, split: SocketSplit) -> None:
        """Receive one stream after another; runs in the receiving thread."""
        try:
            while not self._is_closed:
                try:
                    self._receive_stream(split)
                except (OSError, pa.ArrowInvalid) as error:
                    if self._retry is None:
                        raise SourceError(
                            f"the stream from {split.split_id} broke: {error}",
                            asked=split.split_id,
                            remedy="reconnect=True · check the server",
                            details={"splits": [split.split_id]},
                        ) from error
                if self._retry is None:
                    break
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, self._retry)
        except BaseException as error:  # noqa: BLE001 - fetch() raises it
            self._error = error
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _receive_stream(self, split: SocketSplit) -> None:
        with socket.create_connection((split.host, split.port), self._timeout) as connection:
            with self._changed:
                if self._is_closed:
                    return
                self._socket = connection
            try:
                connection.settimeout(None)
                with connection.makefile("rb") as file, ipc.open_stream(file) as reader:
                    self._check(reader.schema, split)
                    for batch in reader:
                        if not self._put(batch):
                            return
            finally:
                with self._changed:
                    self._socket = None

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Wait for room and store a batch; return False once the reader is closed."""
        known = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        with self._changed:
            self._changed.wait_for(lambda: len(self._received) < _AHEAD or self._is_closed)
            self._received.append(known)
            self._changed.notify_all()
            return not self._is_closed

    def _check(self, given: pa.Schema, split: SocketSplit) -> None:
        if not given.remove_metadata().equals(self._schema):
            raise SchemaMismatchError(
                f"the stream from {split.split_id} has another schema",
                asked=_text(self._schema),
                have=_text(given),
                details={"splits": [split.split_id]},
            )


def _text(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
