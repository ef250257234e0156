"""A worker's connection to the coordinator: blocking calls first, then a thread that reads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate._closing import Closing
from headgate.control.beside import DriverHeartbeats
from headgate.control.cause import Cause
from headgate.control.connection import WorkerConnection
from headgate.spark.wire.channel import MESSAGES
from headgate.spark.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.control.place import Place
    from headgate.environment import Waits
    from headgate.spark.tasks.timing import Clock

#: Seconds between two PROGRESS messages.
PROGRESS: Final = 1.0
#: Seconds that a task waits for the answer to its last message.
LAST_WORD: Final = 5.0
#: Seconds between two looks at the driver's heartbeats while there is nothing to read.
_LOOK: Final = 0.5


@dataclass(slots=True)
class Counts:
    """The progress of a task; written by its main thread, read by the control thread."""

    rows: int = 0
    bytes: int = 0
    #: The clocks of the task's threads; the busiest one is reported.
    clocks: list[Clock] = field(default_factory=list)
    #: Further fields of each PROGRESS message.
    about: dict[str, Any] = field(default_factory=dict)
    #: Returns the waits of the task's environment, if there is one.
    waits: Callable[[], Waits] | None = None

    def fields(self) -> dict[str, int]:
        """Return the fields of a PROGRESS message."""
        times = [clock.fields() for clock in self.clocks]
        busiest = min(times, key=lambda spent: spent["input_ms"], default={})
        return {"rows": self.rows, "bytes": self.bytes, **busiest, **self._waited(), **self.about}

    def _waited(self) -> dict[str, int]:
        if self.waits is None:
            return {}
        waits = self.waits()
        ns = {"memory_ms": waits.memory_ns, "link_ms": waits.link_ns, "io_ms": waits.io_ns}
        return {name: value // 1_000_000 for name, value in ns.items()}


class Control(Closing):
    """One control connection, and the heartbeats beside it. A context manager that closes both.

    Raises:
        CoordinatorError: the driver could not be reached.
        HandshakeError: the two ends do not share the exchange's secret.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._inbox: list[Message] = []
        self._run, self._epoch = 0, 0
        self._thread: threading.Thread | None = None
        self._said: dict[str, Message] = {}
        self._news = threading.Condition()
        self._closed = False
        #: The first exception of handling a message in the thread.
        self.error: Exception | None = None
        self._heartbeats: DriverHeartbeats[Message] | None = None
        self._connection = WorkerConnection(place, MESSAGES)

    @property
    def host(self) -> str:
        """This worker's own address on the way to the driver."""
        return str(self._connection.sock.getsockname()[0])

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._closed = True
        self._connection.shut_down()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LAST_WORD)
        self._connection.sock.close()
        if self._heartbeats is not None:
            self._heartbeats.close()

    def bind(self, run: int, epoch: int) -> None:
        """Tag all further messages with a run and an epoch."""
        self._run, self._epoch = run, epoch

    def send(self, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Send a message.

        Raises:
            CoordinatorError: the connection is gone.
        """
        with self._lock:
            self._connection.send(Message(kind, self._run, self._epoch, fields or {}))

    def progress(self, counts: Counts) -> None:
        """Send a PROGRESS message; drop it if the driver is behind with reading.

        Raises:
            CoordinatorError: the connection is gone.
        """
        if self._connection.is_writable:
            self.send("PROGRESS", counts.fields())

    def receive(self) -> Message:
        """Wait for the next message; only before :meth:`listen`, and after the end of an epoch.

        The first call starts the heartbeats: before any function of the user runs.

        Raises:
            CoordinatorError: the connection is gone, or the driver silent.
        """
        if self._heartbeats is None:
            self._start_heartbeats()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None
        while not self._inbox:
            self._inbox += self._read(_LOOK)
        return self._inbox.pop(0)

    def listen(self, handle: Callable[[Message], None], counts: Counts) -> None:
        """Start the thread that handles further messages and reports progress.

        The thread ends with the epoch: :meth:`receive` returns the messages after EPOCH_ENDED.
        """
        self._said.clear()

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
        """Wait until the thread has handled one of these; return None after ``timeout`` seconds."""
        with self._news:
            self._news.wait_for(lambda: any(kind in self._said for kind in kinds), timeout)
            return next((self._said[kind] for kind in kinds if kind in self._said), None)

    def _listen(self, handle: Callable[[Message], None], counts: Counts) -> None:
        due = time.monotonic() + PROGRESS
        messages, self._inbox = self._inbox, []
        while not self._closed:
            for number, message in enumerate(messages, 1):
                self._handle(handle, message)
                if message.kind == "EPOCH_ENDED":
                    self._inbox = messages[number:]
                    self._note(message.kind, message.fields)
                    return
                self._note(message.kind, message.fields)
            messages = self._read(min(_LOOK, max(0.0, due - time.monotonic())))
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

    def _read(self, timeout: float) -> list[Message]:
        """Return the messages that come within ``timeout`` seconds; if none does, check for silence."""
        if self._connection.is_readable(timeout):
            return self._connection.receive()
        if self._heartbeats is not None:
            self._heartbeats.check()
        return []

    def _start_heartbeats(self) -> None:
        self._heartbeats = DriverHeartbeats(
            self._place,
            MESSAGES,
            self._connection,
            lambda token: Message("HEARTBEAT", fields={"control": token}),
        )
