"""The coordinator's thread on the driver: sockets in, messages out, one selector."""

from __future__ import annotations

import logging
import queue
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from headgate.errors import HeadgateError, ProtocolError
from headgate.spark.channel import CoordinatorLink
from headgate.spark.coordinator import Coordinator
from headgate.spark.members import AskVerdict, Cancel, Effect, Ended, Member, Send, Submit, Warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.spark.cause import Cause
    from headgate.spark.run import Run

_LOG: Final = logging.getLogger("headgate.spark")

#: Seconds that a peer has to prove itself.
HANDSHAKE: Final = 5.0
#: Most connections that have not proved themselves; further ones close the oldest.
MAX_PENDING: Final = 64
#: Most bytes that wait for one worker that does not read.
MAX_OUTPUT: Final = 64 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_TICK: Final = 0.05
_IDLE: Final = 0.5


class SparkSide(Protocol):
    """What the server needs of Spark; none of these may block."""

    def submit(self, run: Run) -> None:
        """Start the producer job of a run."""

    def cancel(self, run: Run) -> None:
        """Cancel the producer job of a run."""

    def ask_verdict(self, member: Member, run: Run) -> None:
        """Find out what became of a task."""

    def ended(self, run: Run, cause: Cause | None) -> None:
        """Take note of the end of a run."""

    def warn(self, text: str) -> None:
        """Tell the user."""

    def tick(self, coordinator: Coordinator) -> None:
        """Look at the state, once in a while."""


class _Connection:
    def __init__(self, sock: socket.socket, link: CoordinatorLink, now: float) -> None:
        self.sock = sock
        self.link = link
        self.accepted = now


class Server:
    """Owns the coordinator and its connections; everything else talks to it by :meth:`post`.

    Args:
        bind_host: address to listen on.
        keys: returns the control key of an exchange, None for an unknown one.
        make_side: makes the Spark side, given this server.
    """

    def __init__(
        self,
        bind_host: str,
        keys: Callable[[bytes], bytes | None],
        make_side: Callable[[Server], SparkSide],
    ) -> None:
        self.coordinator = Coordinator()
        self._keys = keys
        self._connections: dict[int, _Connection] = {}
        self._numbers = 0
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((bind_host, 0), backlog=256)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wake_in, self._wake_out = socket.socketpair()
        for sock in (self._wake_in, self._wake_out):
            sock.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, 0)
        self._selector.register(self._wake_out, selectors.EVENT_READ, -1)
        self._side = make_side(self)
        self._thread = threading.Thread(target=self._loop, name="headgate-coordinator", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def post(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the coordinator's thread, soon."""
        self._inbox.put(action)
        try:
            self._wake_in.send(b"\0")
        except (BlockingIOError, OSError):
            return  # it is awake already, or closed

    def stop(self, timeout: float = 5.0) -> None:
        """End all runs, close everything and wait for the thread."""

        def stop() -> None:
            self._stopping = True

        self.post(stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._round()
            self.coordinator.close()
            self._do_all(self.coordinator.take_effects())
        except Exception:  # noqa: BLE001 - the last line of defence: say it, then close
            _LOG.exception("the coordinator failed; running exchanges will fail too")
        finally:
            self._close_all()

    def _round(self) -> None:
        timeout = _TICK if self.coordinator.members or self.coordinator.runs else _IDLE
        for key, events in self._selector.select(timeout):
            if key.data == 0:
                self._accept()
            elif key.data == -1:
                self._wake_out.recv(4096)
            else:
                self._serve(key.data, events)
        while not self._inbox.empty():
            self._inbox.get()()
        now = time.monotonic()
        self._expire(now)
        self.coordinator.tick(now)
        self._side.tick(self.coordinator)
        self._do_all(self.coordinator.take_effects())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the peer gave up before we looked
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._numbers += 1
        link = CoordinatorLink(self._keys)
        self._connections[self._numbers] = _Connection(sock, link, time.monotonic())
        self._selector.register(sock, selectors.EVENT_READ, self._numbers)
        pending = [n for n, c in self._connections.items() if not c.link.established]
        if len(pending) > MAX_PENDING:
            self._close(pending[0])

    def _serve(self, number: int, events: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_READ:
                self._read(number, connection)
            self._write(number, connection)
        except BlockingIOError:
            return
        except OSError:
            self._close(number)
        except HeadgateError as error:
            _LOG.warning("a control connection was closed: %s", error.summary)
            self._close(number)

    def _read(self, number: int, connection: _Connection) -> None:
        data = connection.sock.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the worker hung up")
        link = connection.link
        for message in link.receive(data):
            now = time.monotonic()
            self.coordinator.message(number, link.exchange_id, message, now)

    def _write(self, number: int, connection: _Connection) -> None:
        link = connection.link
        while link.pending:
            try:
                link.written(connection.sock.send(link.output()[:_CHUNK]))
            except BlockingIOError:
                break
        if link.pending > MAX_OUTPUT:
            raise ProtocolError(f"a worker left {link.pending} bytes unread")
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.pending else 0)
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, number)

    def _expire(self, now: float) -> None:
        late = [
            number
            for number, connection in self._connections.items()
            if not connection.link.established and now - connection.accepted > HANDSHAKE
        ]
        for number in late:
            self._close(number)

    def _do_all(self, effects: list[Effect]) -> None:
        touched: set[int] = set()
        for effect in effects:
            _LOG.debug("%s", effect)
            match effect:
                case Send(connection=number, message=message):
                    if number in self._connections:
                        self._connections[number].link.send(message)
                        touched.add(number)
                case Submit(run=run):
                    self._side.submit(run)
                case Cancel(run=run):
                    self._side.cancel(run)
                case AskVerdict(member=member, run=run):
                    self._side.ask_verdict(member, run)
                case Ended(run=run, cause=cause):
                    self._side.ended(run, cause)
                case Warn(text=text):
                    self._side.warn(text)
        for number in touched:
            self._serve(number, 0)

    def _close(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()
            self.coordinator.closed(number)

    def _close_all(self) -> None:
        for connection in self._connections.values():
            connection.sock.close()
        self._connections.clear()
        self._selector.close()
        for sock in (self._listener, self._wake_in, self._wake_out):
            sock.close()
