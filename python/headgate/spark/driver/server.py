"""The driver's control server: it tells consumers of kept exchanges which hosts have what producers left.

One thread with one selector. An error in one message or connection ends that connection, and not the thread.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from headgate.control.heartbeat import keep_alive
from headgate.control.newcomers import Newcomers
from headgate.errors import HeadgateError, ProtocolError
from headgate.spark.driver.listener import Listener
from headgate.spark.driver.logs import say
from headgate.spark.wire.channel import CoordinatorLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate._native import ControlKey
    from headgate.spark.wire.messages import Message

#: Most connections that a round accepts, so that each can be read before many others push it out.
_ACCEPTS: Final = 8
#: Most bytes that are queued for one worker: 128 of the largest messages, or the places of some 50,000 producers.
MAX_OUTPUT: Final = 8 * 1024 * 1024
#: Refused connections that are logged one by one, and the number of further ones per log line.
_NAMED: Final = 10
_COUNTED: Final = 1000
_CHUNK: Final = 64 * 1024
#: Seconds between two looks at connections that wait too long.
_IDLE: Final = 0.5
#: Seconds for the handshake of a connection, whose worker may be stopped meanwhile.
HANDSHAKE: Final = 12.0
#: Seconds without a byte after which a connection is closed.
SILENCE: Final = 10.0


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
        #: When it was accepted; once established, when bytes last passed, by the server's own clock.
        self.since = now
        #: True once its worker has proved that it belongs to an exchange.
        self.is_established = False
        #: True once it was told the places of a kept exchange's producers.
        self.has_places = False


class Server:
    """Owns the connections of workers to the driver.

    Args:
        bind_host: address to listen on.
        keys: returns the control key of an exchange, None for an unknown one.
        kept: answers the consumers of kept exchanges.
        handshake: seconds for the handshake of a connection.
    """

    def __init__(
        self,
        bind_host: str,
        keys: Callable[[bytes], ControlKey | None],
        kept: KeptSide,
        handshake: float = HANDSHAKE,
    ) -> None:
        self._keys = keys
        self._kept = kept
        self._handshake = handshake
        self._connections: dict[int, _Connection] = {}
        self._newcomers = Newcomers[int]()
        self._numbers = 0
        self._refused = 0
        self._failures = 0
        #: Seconds in which the loop ran. Time in which it could not run counts as no peer's silence.
        self._clock, self._looked = 0.0, time.monotonic()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = Listener(bind_host, self._selector, 0)
        self.port: int = self._listener.port
        self._wake_in, self._wake_out = socket.socketpair()
        for sock in (self._wake_in, self._wake_out):
            sock.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, -1)
        self._thread = threading.Thread(target=self._loop, name="headgate-driver", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def stop(self, timeout: float = 5.0) -> None:
        """Close everything and wait for the thread."""
        self._stopping = True
        with contextlib.suppress(OSError):  # it is awake already, or closed
            self._wake_in.send(b"\0")
        self._thread.join(timeout)

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._round()
        except Exception:  # noqa: BLE001 - the last line of defence: say it, then close
            words = "the driver's control server failed; kept exchanges on several hosts will fail too\n%s"
            say(logging.ERROR, words, traceback.format_exc())
        finally:
            self._close_all()

    def _round(self) -> None:
        ready = self._selector.select(self._listener.timeout(_IDLE))
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
        self._listener.tick(now)
        self._expire()

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
        except Exception as error:  # noqa: BLE001 - a bug ends this connection only
            self._fail(number, connection, error)

    def _fail(self, number: int, connection: _Connection, error: Exception) -> None:
        """Close a connection, and log why unless its worker has closed it."""
        if isinstance(error, HeadgateError):  # some of them are an OSError too
            self._refused += 1
            if self._refused <= _NAMED or self._refused % _COUNTED == 0:
                words = "a control connection was closed, number %d of its kind: %s"
                say(logging.WARNING, words, self._refused, error.summary)
            if not connection.link.established:
                self._reject(connection)
        elif not isinstance(error, OSError):
            self._failures += 1
            if self._failures <= _NAMED or self._failures % _COUNTED == 0:
                words = "the driver's control server failed at a worker's bytes, number %d of its kind\n%s"
                lines = "".join(traceback.format_exception(error))
                say(logging.ERROR, words, self._failures, lines)
        self._close(number)

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
        if link.established:
            if not connection.is_established:
                connection.is_established = True
                self._newcomers.left(number, connection.host)
                keep_alive(connection.sock, SILENCE)
            connection.since = self._clock
        for message in messages:
            if message.kind == "ASK_PLACES":
                self._tell_places(connection)
            elif message.kind == "HOST_LOST":
                self._kept.host_lost(link.exchange_id, message["process"])
            else:
                raise ProtocolError(f"a {message.kind} message, which a driver only sends")

    def _tell_places(self, connection: _Connection) -> None:
        """Answer once: a worker could ask more often than it reads."""
        if connection.has_places:
            raise ProtocolError("a second ASK_PLACES message of one connection")
        connection.has_places = True
        for reply in self._kept.places(connection.link.exchange_id):
            connection.link.send(reply)

    def _write(self, number: int, connection: _Connection) -> None:
        link = connection.link
        while link.pending:
            try:
                link.written(connection.sock.send(link.output()))
                connection.since = self._clock
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
            limit = SILENCE if connection.is_established else self._handshake
            if self._clock - connection.since > limit:
                self._close(number)

    def _close(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._newcomers.left(number, connection.host)
            self._selector.unregister(connection.sock)
            connection.sock.close()

    def _close_all(self) -> None:
        for connection in self._connections.values():
            connection.sock.close()
        self._connections.clear()
        self._selector.close()
        for closing in (self._listener, self._wake_in, self._wake_out):
            closing.close()
