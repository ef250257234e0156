"""A source of Arrow batches from a TCP connection."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyarrow import ipc

from headgate.errors import SchemaMismatchError, SourceError
from headgate.schemas import columns_text
from headgate.source.api import Boundedness, SourceSplit
from headgate.source.arguments import Texts, duration, refuse, whole_number
from headgate.source.batch_source import BatchSource
from headgate.source.files.options import schema_of

if TYPE_CHECKING:
    from headgate.source.sequential import Positioned

_OPTIONS: Final = ("host", "port", "schema", "reconnect", "retryInterval", "connectTimeout")

#: Limit of received batches that were not fetched yet; beyond it TCP slows the sender down.
_AHEAD: Final = 2
#: Seconds between two looks for a wake-up while nothing is received.
_POLL: Final = 0.1
#: The value of SO_LINGER with which closing a socket resets the connection: on, for 0 seconds.
_RESET: Final = struct.pack("ii", 1, 0)


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


class SocketSource(BatchSource[SocketSplit]):
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

    split_type = SocketSplit

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

    def first_splits(self, readers: int) -> Sequence[SocketSplit]:  # noqa: ARG002 - one connection
        """Return the connection."""
        return [SocketSplit(self._host, self._port)]

    def open_split(self, split: SocketSplit, readers: int) -> Iterator[Positioned | None]:  # noqa: ARG002 - one reads
        """Yield the batches of one stream after another."""
        rows = split.position
        while True:
            try:
                with closing(_Stream(split, self._connect_timeout)) as stream:
                    for received in stream.received():
                        if isinstance(received, pa.Schema):
                            self._check(received, split)
                        elif received is None:
                            yield None
                        else:
                            rows += received.num_rows
                            yield (
                                pa.RecordBatch.from_arrays(received.columns, schema=self._schema),
                                rows,
                            )
            except (OSError, pa.ArrowInvalid) as error:
                if not self._reconnect:
                    raise SourceError(
                        f"the stream from {split.split_id} broke: {error}",
                        asked=split.split_id,
                        remedy="reconnect=True · check the server",
                        details={"splits": [split.split_id]},
                    ) from error
            if not self._reconnect:
                return
            again_at = time.monotonic() + self._retry_interval
            while (left := again_at - time.monotonic()) > 0:
                time.sleep(min(left, _POLL))
                yield None

    def _check(self, schema: pa.Schema, split: SocketSplit) -> None:
        if not schema.remove_metadata().equals(self._schema):
            raise SchemaMismatchError(
                f"the stream from {split.split_id} has another schema",
                asked=columns_text(self._schema),
                have=columns_text(schema),
                details={"splits": [split.split_id]},
            )


class _Stream:
    """Receives one stream in its own thread, so that a wait for it can be interrupted.

    Args:
        split: the address.
        timeout: longest time to establish a connection, in seconds.
    """

    def __init__(self, split: SocketSplit, timeout: float) -> None:
        self._address, self._timeout = (split.host, split.port), timeout
        #: The schema, the batches, and then the error that broke the stream or None.
        self._queue: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closed = False
        name = f"headgate-fetcher-{split.split_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def received(self) -> Iterator[Any]:
        """Yield the schema and the batches, and None while nothing comes; raise the error that broke the stream."""
        while True:
            try:
                item = self._queue.get(timeout=_POLL)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Disconnect and wait for the thread."""
        with self._lock:
            self._is_closed = True
            if self._socket is not None:
                # A reset: a server whose window is shut would not hear of an orderly end for a minute.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(queue.Empty):
            while True:  # The thread puts one item more at most, for which there is room then.
                self._queue.get_nowait()
        self._thread.join(self._timeout + 1)

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            with socket.create_connection(self._address, self._timeout) as connection:
                with self._lock:
                    self._socket = connection
                    if self._is_closed:
                        return
                try:
                    self._receive(connection)
                finally:
                    with self._lock:
                        self._socket = None
        except BaseException as error:  # noqa: BLE001 - received() raises it
            end = error
        if not self._is_closed:
            self._queue.put(end)

    def _receive(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        with connection.makefile("rb") as file, ipc.open_stream(file) as reader:
            self._queue.put(reader.schema)
            for batch in reader:
                if self._is_closed:
                    return
                self._queue.put(batch)
