"""The coordinator's sockets: authenticated connections of workers, on an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, Final, Protocol, cast

from headgate.control.heartbeat import keep_alive
from headgate.control.link import CoordinatorLink
from headgate.control.newcomers import Newcomers
from headgate.errors import HeadgateError, InternalError
from headgate.stream.job.messages import CODEC, StreamMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate._native import TlsSession
    from headgate.control.place import Place

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds in which a stranger has to prove that it belongs to the job.
_HANDSHAKE: Final = 12.0


class Strangers:
    """The connections that have not proved themselves: limited in number, and no address crowds out another."""

    def __init__(self) -> None:
        self._newcomers = Newcomers[WorkerPeer]()
        self._hosts: dict[WorkerPeer, str] = {}

    def __iter__(self) -> Iterator[WorkerPeer]:
        """Yield all of them."""
        return iter(tuple(self._hosts))

    def __len__(self) -> int:
        """Count them."""
        return len(self._hosts)

    def came(self, peer: WorkerPeer, host: str) -> None:
        """Add a connection; close the one that it crowds out."""
        self._hosts[peer] = host
        self._make_room(self._newcomers.came(peer, host))

    def named(self, peer: WorkerPeer) -> None:
        """Note that a connection has named the job; close the one that it crowds out."""
        if peer in self._hosts:
            self._make_room(self._newcomers.named(peer, self._hosts[peer]))

    def left(self, peer: WorkerPeer) -> None:
        """Forget a connection that has proved itself, or is closed."""
        host = self._hosts.pop(peer, None)
        if host is not None:
            self._newcomers.left(peer, host)

    def _make_room(self, crowded_out: WorkerPeer | None) -> None:
        # A worker that is closed so dials again.
        if crowded_out is not None:
            crowded_out.drop()


class Listener(Protocol):
    """What the server tells of workers, on the event loop."""

    def on_message(self, peer: WorkerPeer, message: StreamMessage) -> None:
        """Handle a message of a worker that has proved itself."""

    def on_lost(self, peer: WorkerPeer, error: Exception | None) -> None:
        """Handle the end of a connection."""


class WorkerPeer(asyncio.Protocol):
    """A connection of a worker.

    Args:
        place: of the coordinator, with the secret.
        listener: hears of messages.
        strangers: the connections that have not proved themselves.
    """

    def __init__(self, place: Place, listener: Listener, strangers: Strangers) -> None:
        key = place.key()
        self._link: CoordinatorLink[StreamMessage] = CoordinatorLink(
            lambda exchange: key if exchange == place.exchange_id else None, CODEC
        )
        self._timeout = place.heartbeat_timeout
        self._listener = listener
        self._strangers = strangers
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        #: Number of the worker at the heartbeats' thread; None before its heartbeats begin.
        self.target: int | None = None
        #: Time of the connection, by the loop's clock.
        self.since = 0.0

    @property
    def token(self) -> str:
        """The token that names this connection on another one of the same worker; once established."""
        return self._link.token if self._link.established else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self.since = asyncio.get_running_loop().time()
        keep_alive(transport.get_extra_info("socket"), self._timeout)
        self._strangers.came(self, transport.get_extra_info("peername")[0])
        self._deadline = asyncio.get_running_loop().call_later(_HANDSHAKE, self._expire)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        had_named = self._link.has_named
        try:
            messages = self._link.receive(data)
        except HeadgateError as error:
            self.fail(error)
            return
        finally:
            self._flush()
        if self._link.has_named and not had_named:
            self._strangers.named(self)
        if self._link.established:
            self._strangers.left(self)
        for message in messages:
            if self._error is None:
                self._listener.on_message(self, message)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end."""
        self._strangers.left(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._link.established:
            self._listener.on_lost(self, self._error or error)
        elif self._error is not None:
            _LOG.warning("a connection was refused: %s", self._error)
        # It refers to its peers.
        del self._listener

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; nothing happens on a connection that has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._link.send(StreamMessage(kind, fields))
            self._flush()

    def detach(self) -> tuple[socket.socket, TlsSession | None]:
        """Give the connection away, and forget it here.

        Raises:
            OSError: this process has too many open files.
        """
        if self._transport is None:
            raise InternalError("a connection was given away before it was made")
        own = self._transport.get_extra_info("socket")
        # The event loop closes its own descriptor, which does not end the connection of this one.
        taken = socket.socket(fileno=os.dup(own.fileno()))
        self.drop()
        return taken, self._link.tls

    def close(self) -> None:
        """End the connection after what was sent."""
        if self._transport is not None:
            self._transport.close()

    def fail(self, error: Exception) -> None:
        """End the connection because of an error, which the listener hears of."""
        self._error = error
        self.close()

    def drop(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        while self._transport is not None and self._link.pending:
            chunk = self._link.output()
            self._transport.write(chunk)
            self._link.written(len(chunk))

    def _expire(self) -> None:
        if not self._link.established:
            self.fail(TimeoutError(f"no proof within {_HANDSHAKE:g} s"))
