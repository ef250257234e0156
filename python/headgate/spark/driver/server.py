"""The coordinator's thread on the driver: sockets in, messages out, one selector.

An error in one message, effect or request of another thread ends no other exchange, and not the thread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from headgate.control.heartbeat import Heartbeats, keep_alive
from headgate.control.newcomers import Newcomers
from headgate.errors import HeadgateError, InternalError, ProtocolError
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.listener import Listener
from headgate.spark.driver.logs import say
from headgate.spark.driver.runs.members import (
    AskVerdict,
    Broken,
    Cancel,
    Effect,
    Ended,
    EpochEnded,
    Kill,
    Member,
    Send,
    Submit,
    Withdrawn,
)
from headgate.spark.wire.channel import CoordinatorLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate._native import ControlKey
    from headgate.control.cause import Cause
    from headgate.spark.driver.runs.epoch_causes import Retries
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing
    from headgate.spark.wire.messages import Message

#: Most connections that a round accepts, so that each can be read before many others push it out.
_ACCEPTS: Final = 8
#: Most bytes that are queued for one worker: 128 of the largest messages, or the places of some 50,000 producers.
MAX_OUTPUT: Final = 8 * 1024 * 1024
#: Refused connections that are logged one by one, and the number of further ones per log line.
_NAMED: Final = 10
_COUNTED: Final = 1000
_CHUNK: Final = 64 * 1024
_TICK: Final = 0.05
_IDLE: Final = 0.5


class SparkSide(Protocol):
    """The Spark side of the server; no method may block."""

    def submit(self, run: Run) -> None:
        """Start the producer job of a run."""

    def cancel(self, run: Run, epoch: int) -> None:
        """Cancel the producer job of an epoch."""

    def ask_verdict(self, member: Member) -> None:
        """Ask Spark for the status of a task."""

    def kill(self, member: Member, reason: str) -> None:
        """Kill a task that Spark takes for running."""

    def epoch_ended(self, run: Run, epoch: int, cause: Cause) -> None:
        """Handle the early end of an epoch."""

    def ended(self, run: Run, cause: Cause | None) -> None:
        """Handle the end of a run."""

    def withdrawn(self, exchange_id: bytes) -> None:
        """Forget an exchange that the coordinator has forgotten."""

    def tick(self, coordinator: Coordinator) -> None:
        """Read the state of the coordinator, in each turn of the loop."""


class KeptSide(Protocol):
    """The questions and reports of consumers of kept exchanges; no method may block."""

    def places(self, exchange_id: bytes) -> Iterable[Message]:
        """Return the PLACES messages of an exchange."""

    def host_lost(self, exchange_id: bytes, process: str) -> None:
        """Handle that nobody listens where a host did that serves this exchange."""


class _Connection:
    def __init__(self, sock: socket.socket, host: str, link: CoordinatorLink, now: float) -> None:
        self.sock = sock
        self.host = host
        self.link = link
        #: Time of its acceptance, later of its handshake, by the server's own clock.
        self.since = now
        #: Timeout of its exchange; 0 before its handshake.
        self.heartbeat_timeout = 0.0
        #: Number of the worker at the heartbeats' thread.
        self.target: int | None = None
        #: True once it was told the places of a kept exchange's producers.
        self.has_places = False


class Server:
    """Owns the coordinator and its connections; other threads reach it by :meth:`post`.

    Args:
        bind_host: address to listen on.
        keys: returns the control key of an exchange, None for an unknown one.
        make_side: makes the Spark side of this server.
        retries: how often to try again.
        timing: how long to wait.
        kept: answers the consumers of kept exchanges; None if there are none.
    """

    def __init__(
        self,
        bind_host: str,
        keys: Callable[[bytes], ControlKey | None],
        make_side: Callable[[Server], SparkSide],
        retries: Retries,
        timing: Timing,
        kept: KeptSide | None = None,
    ) -> None:
        self.timing = timing
        self.coordinator = Coordinator(retries, timing)
        self._keys = keys
        self._kept = kept
        self._connections: dict[int, _Connection] = {}
        self._newcomers = Newcomers[int]()
        self._numbers = 0
        self._refused = 0
        self._failures = 0
        self._tokens: dict[str, int] = {}
        self._heartbeats = Heartbeats()
        #: Seconds in which the loop ran. Time in which it could not run counts as no peer's silence.
        self._clock, self._looked = 0.0, time.monotonic()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = Listener(bind_host, self._selector, 0)
        self.port: int = self._listener.port
        self._wake_in, self._wake_out = socket.socketpair()
        for sock in (self._wake_in, self._wake_out):
            sock.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, -1)
        self._side = make_side(self)
        self._thread = threading.Thread(target=self._loop, name="headgate-coordinator", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
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
            words = "the coordinator failed; running exchanges will fail too\n%s"
            say(logging.ERROR, words, traceback.format_exc())
        finally:
            self._close_all()

    def _round(self) -> None:
        timeout = _TICK if self.coordinator.members or self.coordinator.runs else _IDLE
        ready = self._selector.select(self._listener.timeout(timeout))
        now = time.monotonic()
        self._clock += min(_IDLE, now - self._looked)
        self._looked = now
        for key, events in ready:
            if key.data == 0:
                self._accept()
            elif key.data == -1:
                self._wake_out.recv(4096)
            else:
                self._serve(key.data, events)
        while not self._inbox.empty():
            with self._contained("a request of another thread"):
                self._inbox.get()()
        self._listener.tick(now)
        self._expire()
        with self._contained("its turn"):
            self.coordinator.tick(time.monotonic())
        with self._contained("its look at the runs"):
            self._side.tick(self.coordinator)
        self._do_all(self.coordinator.take_effects())

    @contextlib.contextmanager
    def _contained(self, doing: str, exchange_id: bytes | None = None) -> Iterator[None]:
        """Let an error in the code below end what it is about, and nothing else.

        Args:
            doing: its work, for the log.
            exchange_id: the exchange that ends; None if the error is about no one.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a bug; the exchange and the log get its cause
            self._failures += 1
            if self._failures <= _NAMED or self._failures % _COUNTED == 0:
                words = "the coordinator failed at %s, number %d of its kind\n%s"
                say(logging.ERROR, words, doing, self._failures, traceback.format_exc())
            if exchange_id is not None:
                self.coordinator.broke(exchange_id, doing, error)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            accepted = self._listener.accept(self._looked)
            if accepted is None:
                return
            sock, host = accepted
            sock.setblocking(False)
            self._numbers += 1
            connection = _Connection(sock, host, CoordinatorLink(self._keys), self._clock)
            self._connections[self._numbers] = connection
            self._selector.register(sock, selectors.EVENT_READ, self._numbers)
            self._make_room(self._newcomers.came(self._numbers, host))

    def _make_room(self, crowded_out: int | None) -> None:
        """Close a connection before its proof; a worker dials again."""
        if crowded_out is not None:
            self._close(crowded_out)

    def _serve(self, number: int, events: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_READ:
                self._read(number, connection)
            if number in self._connections:
                self._write(number, connection)
        except BlockingIOError:
            return
        except HeadgateError as error:  # before OSError: some of ours are that too
            self._refused += 1
            if self._refused <= _NAMED or self._refused % _COUNTED == 0:
                words = "a control connection was closed, number %d of its kind: %s"
                say(logging.WARNING, words, self._refused, error.summary)
            if not connection.link.established:
                self._reject(connection)
            self._close(number, error)
        except OSError:
            self._close(number)
        except Exception as error:
            link = connection.link
            with self._contained(
                "a worker's bytes", link.exchange_id if link.established else None
            ):
                raise
            self._close(number, InternalError(f"the coordinator failed: {error}"))

    def _reject(self, connection: _Connection) -> None:
        """Tell a peer why its handshake failed, if its socket takes the bytes at once."""
        with contextlib.suppress(OSError):  # the peer may have closed the connection
            connection.sock.send(connection.link.output())

    def _read(self, number: int, connection: _Connection) -> None:
        data = connection.sock.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the worker closed the connection")
        link = connection.link
        had_named = link.has_named
        messages = link.receive(data)
        if link.has_named and not had_named:
            self._make_room(self._newcomers.named(number, connection.host))
        if link.established and not connection.heartbeat_timeout:
            self._newcomers.left(number, connection.host)
            self._established(number, connection)
        for message in messages:
            if message.kind == "HEARTBEAT":
                self._hear(number, connection, message["control"])
                return
            if self._kept is not None and message.kind == "ASK_PLACES":
                self._tell_places(connection, self._kept)
                continue
            if self._kept is not None and message.kind == "HOST_LOST":
                self._kept.host_lost(link.exchange_id, message["process"])
                continue
            now = time.monotonic()
            self.coordinator.message(number, link.exchange_id, message, now)

    def _tell_places(self, connection: _Connection, kept: KeptSide) -> None:
        """Answer once: a worker could ask more often than it reads."""
        if connection.has_places:
            raise ProtocolError("a second ASK_PLACES message of one connection")
        connection.has_places = True
        for reply in kept.places(connection.link.exchange_id):
            connection.link.send(reply)

    def _established(self, number: int, connection: _Connection) -> None:
        facts = self.coordinator.exchanges.get(connection.link.exchange_id)
        if facts is None:
            raise ProtocolError("the exchange of this task is gone")
        connection.heartbeat_timeout = facts.heartbeat_timeout
        connection.since = self._clock
        keep_alive(connection.sock, facts.heartbeat_timeout)
        self._tokens[connection.link.token] = number

    def _hear(self, number: int, beside: _Connection, token: str) -> None:
        """Hand a connection with a worker's heartbeats to the native thread."""
        if number in self.coordinator.members:
            raise ProtocolError("an unexpected HEARTBEAT message")
        connection = self._connections.get(self._tokens.get(token, 0))
        exchange_id = beside.link.exchange_id
        if (
            connection is None
            or connection.target is not None
            or connection.link.exchange_id != exchange_id
        ):
            self._close(number)  # that worker is gone already
            return
        self._forget(number)
        try:
            timeout = connection.heartbeat_timeout
            connection.target = self._heartbeats.monitor(beside.sock, timeout, beside.link.tls)
        except OSError as error:
            say(
                logging.ERROR,
                "cannot monitor a worker's heartbeats, so it will count as lost: %s",
                error,
            )

    def _write(self, number: int, connection: _Connection) -> None:
        link = connection.link
        while link.pending:
            try:
                link.written(connection.sock.send(link.output()))
            except BlockingIOError:
                break
        if link.pending > MAX_OUTPUT:
            raise ProtocolError(
                f"a worker left {link.pending} bytes unread, more than the limit of {MAX_OUTPUT}"
            )
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.pending else 0)
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, number)

    def _expire(self) -> None:
        for number, connection in list(self._connections.items()):
            waited = self._clock - connection.since
            if not connection.link.established:
                if waited > self.timing.handshake:
                    self._close(number)
            elif (silence := self._silence(connection, waited)) is not None:
                host = connection.host
                say(
                    logging.WARNING,
                    "no heartbeat for %.0f s from %s, connection %d",
                    silence,
                    host,
                    number,
                )
                self.coordinator.silent(number, host, silence)
                self._close(number)

    def _silence(self, connection: _Connection, waited: float) -> float | None:
        if connection.target is not None:
            return self._heartbeats.silence(connection.target)
        return waited if waited > connection.heartbeat_timeout else None

    def _do_all(self, effects: list[Effect]) -> None:
        touched: set[int] = set()
        for effect in effects:
            say(logging.DEBUG, "%s", effect)
            match effect:
                case Send(connection=number, message=message):
                    if number in self._connections:
                        link = self._connections[number].link
                        with self._contained(f"a {message.kind} message", link.exchange_id):
                            link.send(message)
                        touched.add(number)
                case Broken(exchange_id=exchange_id, cause=cause):
                    words = "exchange %s ends, the others go on: %s\n%s"
                    name = exchange_id.hex()[:4]
                    about = {"exchange": exchange_id.hex()}
                    say(logging.ERROR, words, name, cause.summary, cause.text, about=about)
                case Withdrawn(exchange_id=exchange_id):
                    self._side.withdrawn(exchange_id)
                case Kill(member=member) | AskVerdict(member=member):
                    with self._contained("a question to Spark", member.exchange_id):
                        self._ask_about(effect, member)
                case _:
                    run = self.coordinator.runs.get(effect.run)
                    if run is not None:
                        with self._contained("a request to Spark", run.exchange_id):
                            self._ask_spark(effect, run)
        for number in touched:
            self._serve(number, 0)

    def _ask_about(self, effect: Kill | AskVerdict, member: Member) -> None:
        if isinstance(effect, Kill):
            self._side.kill(member, effect.reason)
        else:
            self._side.ask_verdict(member)

    def _ask_spark(self, effect: Submit | Cancel | EpochEnded | Ended, run: Run) -> None:
        match effect:
            case Submit():
                self._submit(run)
            case Cancel(epoch=epoch):
                self._side.cancel(run, epoch)
            case EpochEnded(epoch=epoch, cause=cause):
                self._side.epoch_ended(run, epoch, cause)
            case Ended(cause=cause):
                self._side.ended(run, cause)

    def _submit(self, run: Run) -> None:
        try:
            self._side.submit(run)
        except Exception:
            # It has no thread that would tell so.
            run.epochs.jobs.ended(run.epoch)
            raise

    def _close(self, number: int, error: HeadgateError | None = None) -> None:
        connection = self._forget(number)
        if connection is not None:
            connection.sock.close()
            self.coordinator.closed(number, error)

    def _forget(self, number: int) -> _Connection | None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._newcomers.left(number, connection.host)
            self._selector.unregister(connection.sock)
            if connection.link.established:
                self._tokens.pop(connection.link.token, None)
            if connection.target is not None:
                self._heartbeats.unmonitor(connection.target)
        return connection

    def _close_all(self) -> None:
        for connection in self._connections.values():
            connection.sock.close()
        self._connections.clear()
        self._heartbeats.close()
        self._selector.close()
        for closing in (self._listener, self._wake_in, self._wake_out):
            closing.close()
