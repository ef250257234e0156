"""A worker's connection to the coordinator: blocking calls first, then a thread that listens."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from headgate import errors
from headgate.spark.cause import Cause
from headgate.spark.channel import WorkerLink, control_key
from headgate.spark.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.spark.timing import Clock

_CHUNK: Final = 64 * 1024
#: Seconds between two PROGRESS messages.
PROGRESS: Final = 1.0
#: Seconds that a task which has said its last word waits for the coordinator's.
LAST_WORD: Final = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the coordinator of an exchange is, and what proves to it that one belongs there."""

    host: str
    port: int
    exchange_id: bytes
    secret: bytes = field(repr=False)
    timeout: float = 60.0


@dataclass(slots=True)
class Counts:
    """What a task has done so far; written by its main thread, read by the control thread."""

    rows: int = 0
    bytes: int = 0
    #: One of each thread that works for the task; the busiest one stands for it.
    clocks: list[Clock] = field(default_factory=list)

    def fields(self) -> dict[str, int]:
        """Return the fields of a PROGRESS message."""
        times = [clock.fields() for clock in self.clocks]
        busiest = min(times, key=lambda spent: spent["input_ms"], default={})
        return {"rows": self.rows, "bytes": self.bytes, **busiest}


class Control:
    """One control connection. A context manager; leaving it hangs up.

    Raises:
        CoordinatorError: the driver could not be reached.
        HandshakeError: the two ends do not share the exchange's secret.
    """

    def __init__(self, place: Place) -> None:
        self._link = WorkerLink(control_key(place.secret, place.exchange_id), place.exchange_id)
        self._place = place
        self._lock = threading.Lock()
        self._inbox: list[Message] = []
        self._run, self._epoch = 0, 0
        self._thread: threading.Thread | None = None
        self._said: dict[str, Message] = {}
        self._news = threading.Condition()
        self._closed = False
        #: What handling a message in the thread raised, if anything.
        self.error: Exception | None = None
        self._sock = self._connect(time.monotonic() + place.timeout)

    @property
    def host(self) -> str:
        """This worker's own address on the way to the driver."""
        return str(self._sock.getsockname()[0])

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.close()

    def close(self) -> None:
        """Hang up and end the thread."""
        self._closed = True
        with contextlib.suppress(OSError):  # the coordinator may have hung up first
            self._sock.shutdown(socket.SHUT_RDWR)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LAST_WORD)
        self._sock.close()

    def bind(self, run: int, epoch: int) -> None:
        """Tag all further messages with a run and an epoch."""
        self._run, self._epoch = run, epoch

    def send(self, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Send a message.

        Raises:
            CoordinatorError: the connection is gone.
        """
        with self._lock:
            self._link.send(Message(kind, self._run, self._epoch, fields or {}))
            self._flush()

    def progress(self, counts: Counts) -> None:
        """Send a PROGRESS message, unless the driver is behind with reading: then drop it.

        Raises:
            CoordinatorError: the connection is gone.
        """
        if select.select([], [self._sock], [], 0.0)[1]:
            self.send("PROGRESS", counts.fields())

    def receive(self) -> Message:
        """Wait for the next message; only before :meth:`listen`.

        Raises:
            CoordinatorError: the connection is gone.
        """
        while not self._inbox:
            self._inbox += self._link.receive(self._read())
        return self._inbox.pop(0)

    def listen(self, handle: Callable[[Message], None], counts: Counts) -> None:
        """Start the thread that handles further messages and reports progress."""

        def listen() -> None:
            try:
                self._listen(handle, counts)
            except (errors.HeadgateError, OSError) as error:
                if not self._closed:
                    handle(Message("ABORT", self._run, self._epoch, Cause.of(error).fields()))
                    self._note("ABORT", Cause.of(error).fields())

        self._thread = threading.Thread(target=listen, name="headgate-control", daemon=True)
        self._thread.start()

    def await_message(self, *kinds: str, timeout: float = LAST_WORD) -> Message | None:
        """Wait until one of these has been handled by the thread; None when it takes too long."""
        with self._news:
            self._news.wait_for(lambda: any(kind in self._said for kind in kinds), timeout)
            return next((self._said[kind] for kind in kinds if kind in self._said), None)

    def _listen(self, handle: Callable[[Message], None], counts: Counts) -> None:
        due = time.monotonic() + PROGRESS
        messages, self._inbox = self._inbox, []
        while not self._closed:
            for message in messages:
                self._handle(handle, message)
                self._note(message.kind, message.fields)
            messages = []
            ready, _, _ = select.select([self._sock], [], [], max(0.0, due - time.monotonic()))
            if ready:
                messages = self._link.receive(self._read())
            if time.monotonic() >= due and not self._closed:
                self.progress(counts)
                due = time.monotonic() + PROGRESS

    def _handle(self, handle: Callable[[Message], None], message: Message) -> None:
        try:
            handle(message)
        except Exception as error:  # noqa: BLE001 - the main thread raises it, see `error`
            self.error = self.error or error
            handle(Message("ABORT", self._run, self._epoch, Cause.of(error).fields()))

    def _note(self, kind: str, fields: Any) -> None:
        with self._news:
            self._said[kind] = Message(kind, self._run, self._epoch, fields)
            self._news.notify_all()

    def _connect(self, deadline: float) -> socket.socket:
        address = (self._place.host, self._place.port)
        while True:
            try:
                sock = socket.create_connection(address, timeout=10.0)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise self._unreachable(error) from error
                time.sleep(0.2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._sock = sock
        try:
            self._flush()
            while not self._link.established:
                self._inbox += self._link.receive(self._read())
            self._flush()
        except BaseException:
            sock.close()
            raise
        sock.settimeout(None)
        return sock

    def _flush(self) -> None:
        try:
            while self._link.pending:
                self._link.written(self._sock.send(self._link.output()))
        except OSError as error:
            raise self._unreachable(error) from error

    def _read(self) -> bytes:
        try:
            data = self._sock.recv(_CHUNK)
        except OSError as error:
            raise self._unreachable(error) from error
        if not data:
            raise self._unreachable(None)
        return data

    def _unreachable(self, error: OSError | None) -> errors.CoordinatorError:
        said = "it hung up" if error is None else str(error)
        return errors.CoordinatorError(
            "the coordinator on the driver cannot be reached",
            asked=f"{self._place.host}:{self._place.port}",
            have=said,
        )
