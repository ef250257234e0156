"""A control server: authenticated connections of workers, on an event loop.

It listens, closes strangers that are too many or do not prove themselves in time, watches heartbeats, and hands the messages
of workers to a service. An error in one message or connection ends that connection only.

Decision: ADR 0045.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import traceback
from typing import TYPE_CHECKING, Final, Protocol, cast

from headgate.control.descriptors import NONE_LEFT, log_shortage_once
from headgate.control.heartbeat import Heartbeats, keep_alive
from headgate.control.link import CoordinatorLink
from headgate.control.logs import log_safely
from headgate.control.messages import HEARTBEAT, Message
from headgate.control.newcomers import Newcomers
from headgate.errors import HeadgateError, InternalError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate._native import ControlKey, TlsSession
    from headgate.control.messages import Codec

#: Connections that wait to be accepted, and most that a round of the loop accepts: each can be read before many others
#: push it out.
_BACKLOG: Final = 256
_ACCEPTS: Final = 8
#: Seconds in which a stranger has to prove that it is a worker.
HANDSHAKE: Final = 12.0
#: Seconds by which a timer is late if the loop could not run. No peer was silent meanwhile.
_LATE: Final = 1.0
#: Most messages of the largest size that are queued for one worker.
_QUEUED: Final = 128
#: Errors that are logged one by one, and the number of further ones per log line.
_LOGGED: Final = 10
_COUNTED: Final = 1000
#: Rounds in which accepted connections are made before the server is closed.
_ROUNDS: Final = 100
#: Seconds until the next try of what needs a descriptor, while there is none.
_NEXT_TRY: Final = 1.0


class Service(Protocol):
    """Handles the messages of workers, on the event loop. An error that it raises ends the worker's connection."""

    def on_message(self, peer: Peer, message: Message) -> None:
        """Handle a message of a worker, which has proved itself."""

    def on_lost(self, peer: Peer, error: Exception | None) -> None:
        """Handle the end of a worker's connection."""


class ControlServer:
    """Listens for workers. After the constructor it is used on its event loop only.

    Args:
        host: address to listen on.
        keys: returns the control key of an exchange or job, None for an unknown one.
        codec: of the messages.
        service: handles them.
        log: gets lines about connections that were refused.
        timeout: seconds without a heartbeat after which a worker is lost.
        idle: seconds after which a worker's connection is closed if no byte passed in them; None for never.
        handshake: seconds for the proof.

    Attributes:
        port: where it listens.
        peers: all connections.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        keys: Callable[[bytes], ControlKey | None],
        codec: Codec,
        service: Service,
        log: logging.Logger,
        *,
        timeout: float = 10.0,
        idle: float | None = None,
        handshake: float = HANDSHAKE,
    ) -> None:
        self.keys = keys
        self.codec = codec
        self.service = service
        self.timeout = timeout
        self.idle = idle
        self.handshake = handshake
        self.most_unread = _QUEUED * codec.max_message
        self.peers: set[Peer] = set()
        self.newcomers = Newcomers[Peer]()
        self._log = log
        self._refused = 0
        self._failures = 0
        self._heartbeats: Heartbeats | None = None
        self._server: asyncio.Server | None = None
        family, *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        text = "the driver cannot accept connections of workers, and tries again each second: %s"
        log_shortage_once(loop, self._log, text)
        self._server = await loop.create_server(
            lambda: Peer(self), sock=self._listener, backlog=_ACCEPTS
        )
        # The loop has set it to the number that it accepts at once.
        self._listener.listen(_BACKLOG)

    async def stop_listening(self) -> None:
        """Accept no further connection."""
        if self._server is not None:
            # A closed server leaves those open that it has accepted and not made: nobody would close them.
            for _ in range(_ROUNDS):  # strangers may dial without end
                accepting = asyncio.all_tasks() - {asyncio.current_task()}
                if not accepting:
                    break
                await asyncio.wait(accepting)
            self._server.close()
            # It refers to this object, by what makes a peer.
            self._server = None
        self._listener.close()

    async def close(self) -> None:
        """Close everything at once."""
        await self.stop_listening()
        for peer in tuple(self.peers):
            peer.drop()
        await asyncio.sleep(0)
        if self._heartbeats is not None:
            self._heartbeats.close()

    def silence(self, peer: Peer) -> float | None:
        """Return the seconds for which a worker has sent no heartbeat, or None if it is not lost."""
        if self._heartbeats is None or peer.target is None:
            seconds = asyncio.get_running_loop().time() - peer.since
            return seconds if seconds > self.timeout else None
        return self._heartbeats.silence(peer.target)

    # Of its peers.

    def make_room(self, crowded_out: Peer | None) -> None:
        """Close a connection before its proof; a worker that is closed so dials again."""
        if crowded_out is not None:
            crowded_out.drop()

    def handle(self, peer: Peer, message: Message) -> None:
        """Handle a message of a worker."""
        if message.kind == HEARTBEAT:
            self._monitor(peer, message["control"])
        else:
            self.service.on_message(peer, message)

    def forget(self, peer: Peer) -> None:
        """Forget a connection that has ended."""
        self.peers.discard(peer)
        self.newcomers.left(peer, peer.host)
        if peer.target is not None and self._heartbeats is not None:
            self._heartbeats.unmonitor(peer.target)

    def log(self, error: Exception) -> None:
        """Log why a connection is closed. Strangers may come without end."""
        if isinstance(error, HeadgateError):
            self._refused += 1
            if self._refused <= _LOGGED or self._refused % _COUNTED == 0:
                text = "a control connection was closed, number %d of its kind: %s"
                log_safely(self._log, logging.WARNING, text, self._refused, error.summary)
        else:
            self._failures += 1
            if self._failures <= _LOGGED or self._failures % _COUNTED == 0:
                text = "the control server failed at a worker's bytes, number %d of its kind\n%s"
                lines = "".join(traceback.format_exception(error))
                log_safely(self._log, logging.ERROR, text, self._failures, lines)

    def _monitor(self, heartbeats: Peer, token: str) -> None:
        """Hand a connection with a worker's heartbeats to the native thread."""
        peer = next((peer for peer in self.peers if peer.token == token), None)
        if heartbeats.is_closing or peer is None or peer.target is not None:
            heartbeats.drop()  # that worker is gone already
            return
        try:
            self._heartbeats = self._heartbeats or Heartbeats()
            sock, tls = heartbeats.detach()
            peer.target = self._heartbeats.monitor(sock, self.timeout, tls)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            asyncio.get_running_loop().call_later(_NEXT_TRY, self._monitor, heartbeats, token)


class Peer(asyncio.Protocol):
    """A connection of a worker, or of a stranger.

    Args:
        server: of the connection.

    Attributes:
        host: address of the other end.
        since: time of the connection, by the loop's clock.
        target: number of the worker at the heartbeats' thread; None before its heartbeats begin.
    """

    def __init__(self, server: ControlServer) -> None:
        self.host = ""
        self.since = 0.0
        self.target: int | None = None
        self._server = server
        self._link = CoordinatorLink(server.keys, server.codec)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: True if bytes came since the last look; bytes that waited for the worker then.
        self._has_received = False
        self._unread = 0
        self._error: Exception | None = None

    @property
    def exchange_id(self) -> bytes:
        """The exchange or job that the peer has named."""
        return self._link.exchange_id

    @property
    def token(self) -> str:
        """The token that names this connection on another one of the same worker; once established."""
        return self._link.token if self._link.established else ""

    @property
    def is_closing(self) -> bool:
        """True once the connection has ended, or is about to."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self.since = asyncio.get_running_loop().time()
        self.host = (transport.get_extra_info("peername") or ("",))[0]
        self._server.peers.add(self)
        self._look_in(self._server.handshake)
        self._server.make_room(self._server.newcomers.came(self, self.host))
        keep_alive(transport.get_extra_info("socket"), self._server.timeout)

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection only
            self.fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end."""
        self._look_in(None)
        self._server.forget(self)
        if self._link.established:
            self._server.service.on_lost(self, self._error or error)
        # Its service may refer to this object.
        del self._server

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; nothing happens on a connection that has ended.

        Raises:
            ProtocolError: the message does not fit its row, or is too large.
        """
        if self._transport is None or self._transport.is_closing():
            return
        self._link.send(Message(kind, fields))
        self._flush()
        unread, most = self._transport.get_write_buffer_size(), self._server.most_unread
        if unread > most:
            problem = f"a worker left {unread} bytes unread, more than the limit of {most}"
            self.fail(ProtocolError(problem))

    def detach(self) -> tuple[socket.socket, TlsSession | None]:
        """Give the connection away, and forget it here.

        Raises:
            OSError: this process has too many open files.
        """
        if self._transport is None:
            raise InternalError("a connection was given away before it was made")
        sock = self._transport.get_extra_info("socket")
        # The event loop closes its own descriptor, which does not end the connection of this one.
        duplicate = socket.socket(fileno=os.dup(sock.fileno()))
        self.drop()
        return duplicate, self._link.tls

    def fail(self, error: Exception) -> None:
        """End the connection because of an error, which the service hears of."""
        if self._error is None:
            self._error = error
            self._server.log(error)
        if self._transport is not None and not self._link.established:
            # The peer is told why its handshake failed.
            self._flush()
            self._transport.close()
        else:
            self.drop()

    def drop(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, data: bytes) -> None:
        link, server = self._link, self._server
        was_established, had_named = link.established, link.has_named
        self._has_received = True
        messages = link.receive(data)
        self._flush()
        if link.established and not was_established:
            server.newcomers.left(self, self.host)
            self._look_in(server.idle)
        elif link.has_named and not had_named:
            server.make_room(server.newcomers.named(self, self.host))
        for message in messages:
            if self._error is None:
                server.handle(self, message)

    def _flush(self) -> None:
        while self._transport is not None and self._link.pending:
            chunk = self._link.output()
            self._transport.write(chunk)
            self._link.written(len(chunk))

    def _look_in(self, seconds: float | None) -> None:
        """Look for traffic in so many seconds, in place of an earlier look; None for never."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """End a connection that is idle, or has not proved itself in time."""
        if self._transport is None or self._timer is None:
            return
        is_late = asyncio.get_running_loop().time() - self._timer.when() > _LATE
        unread = self._transport.get_write_buffer_size()
        is_active = self._has_received or unread < self._unread
        self._has_received, self._unread = False, unread
        if is_late or (is_active and self._link.established):
            self._look_in(self._server.idle if self._link.established else self._server.handshake)
        else:
            self.drop()
