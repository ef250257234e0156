"""The workers of a streaming job as its coordinator sees them: connections, heartbeats, losses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.control.cause import Cause
from headgate.control.descriptors import NONE_LEFT, say_shortage_once
from headgate.control.heartbeat import Heartbeats
from headgate.control.place import Place
from headgate.errors import PeerLostError, ProtocolError
from headgate.observe.record import Worker
from headgate.stream.job.server import Strangers, WorkerPeer

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stream.job.messages import StreamMessage
    from headgate.stream.job.pool import WorkerPool

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds in which workers have to end once they were told to.
_STOP: Final = 40.0
#: Rounds in which accepted connections are made before the server is closed.
_ROUNDS: Final = 100
#: Seconds between two looks whether workers have ended.
_PAUSE: Final = 0.002
#: Seconds until the next try of what needs a descriptor, while there is none.
_NEXT_TRY: Final = 1.0


class Master(Protocol):
    """What the coordinator wants to hear of its workers, on the event loop."""

    def guarded(self, action: Callable[[], None]) -> None:
        """Call an action, and let its errors fail the job."""

    def on_ready(self) -> None:
        """Handle that a worker has come."""

    def on_message(self, worker: int, message: StreamMessage) -> None:
        """Handle a worker's message."""

    def on_lost(self, worker: int, cause: Cause) -> None:
        """Handle that a worker is gone; it is started again afterwards."""


class Crew:
    """Connections with all workers. Used on the event loop only.

    Args:
        pool: starts workers.
        timeout: seconds without a heartbeat after which a worker is lost.
        master: hears of them.
    """

    def __init__(
        self,
        pool: WorkerPool,
        timeout: float,
        master: Master,
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._master = master
        self._peers: dict[int, WorkerPeer] = {}
        self._numbers: dict[WorkerPeer, int] = {}
        #: What each worker said last when it connected.
        self._known: dict[int, Worker] = {}
        self._strangers = Strangers()
        self._heartbeats = Heartbeats()
        self._place: Place | None = None
        self._server: asyncio.Server | None = None
        self._is_closing = False

    async def open(self) -> None:
        """Listen, and start all workers."""
        endpoint, secret = self._pool.endpoint, secrets.token_bytes(32)
        exchange = secrets.token_bytes(16)
        loop = asyncio.get_running_loop()
        # The port is known once the server listens, and no peer needs it.
        known = Place(endpoint.host, 0, exchange, secret, 60.0, self._timeout, endpoint.tls)
        self._server = await loop.create_server(
            lambda: WorkerPeer(known, self, self._strangers), endpoint.listen, 0
        )
        port = self._server.sockets[0].getsockname()[1]
        self._place = Place(
            endpoint.host, port, exchange, secret, 60.0, self._timeout, endpoint.tls
        )
        for number in range(self._pool.size):
            self._pool.start(number, self._place)
        say_shortage_once(
            loop, _LOG, "workers cannot connect to the coordinator, it tries again: %s"
        )

    def discard(self) -> None:
        """Close what the constructor opened, instead of :meth:`open` and :meth:`close`."""
        self._heartbeats.close()

    async def close(self) -> None:
        """Stop all workers, and wait until they have closed their connections."""
        self._is_closing = True
        loop = asyncio.get_running_loop()
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
        for peer in self._peers.values():
            peer.send("STOP")
        # Each answers what was sent before, and closes its connection.
        deadline = loop.time() + _STOP
        while self._numbers and loop.time() < deadline:
            self._drop_silent()
            await asyncio.sleep(_PAUSE)
        for peer in (*self._numbers, *self._strangers):
            peer.drop()
        await asyncio.sleep(0)
        self._heartbeats.close()

    @property
    def is_complete(self) -> bool:
        """True if all workers are connected."""
        return len(self._peers) == self._pool.size

    @property
    def size(self) -> int:
        """Number of workers."""
        return self._pool.size

    @property
    def connected(self) -> set[int]:
        """Numbers of the workers that are connected."""
        return set(self._peers)

    def host(self, worker: int) -> str:
        """Return the name of a worker's host."""
        return self._known[worker].host

    def status(self) -> list[Worker]:
        """Return the connected workers; from any thread."""
        return [self._known[number] for number in sorted(self._peers)]

    def send(self, worker: int, kind: str, **fields: Any) -> None:
        """Send a message to a worker; nothing happens if it is gone."""
        peer = self._peers.get(worker)
        if peer is not None:
            peer.send(kind, **fields)

    def send_all(self, kind: str, **fields: Any) -> None:
        """Send a message to all workers."""
        for peer in self._peers.values():
            peer.send(kind, **fields)

    def drop(self, worker: int) -> None:
        """End the connection of a worker, which is lost then."""
        peer = self._peers.get(worker)
        if peer is not None:
            peer.drop()

    def look(self) -> None:
        """Look for silent workers, and for those that have ended before their connection did, or had none."""
        self._drop_silent()
        for number, cause in self._pool.ended().items():
            if number in self._peers:
                self._peers[number].drop()
            else:
                self._lose(number, cause)

    def _drop_silent(self) -> None:
        now = asyncio.get_running_loop().time()
        for peer, number in list(self._numbers.items()):
            if peer.target is None:
                silence = now - peer.since if now - peer.since > self._timeout else None
            else:
                silence = self._heartbeats.silence(peer.target)
            if silence is not None:
                _LOG.warning("no heartbeat for %.0f s from worker %d", silence, number)
                peer.drop()

    # Of the server.

    def on_message(self, peer: WorkerPeer, message: StreamMessage) -> None:
        """Handle a message of a worker."""
        try:
            if message.kind == "HEARTBEAT":
                self._monitor(peer, message["control"])
            elif message.kind == "HELLO":
                self._hello(peer, message)
            elif (number := self._numbers.get(peer)) is not None:
                self._master.on_message(number, message)
            else:
                raise ProtocolError(f"a connection sent {message.kind} before HELLO")
        except Exception as error:  # noqa: BLE001 - costs that worker, which is lost and started again
            _LOG.warning("the message %s of a worker was refused: %s", message.kind, error)
            peer.fail(error)
            peer.drop()

    def on_lost(self, peer: WorkerPeer, error: Exception | None) -> None:
        """Handle the end of a worker's connection."""
        if peer.target is not None:
            self._heartbeats.unmonitor(peer.target)
        number = self._numbers.pop(peer, None)
        if number is None or self._peers.get(number) is not peer or self._is_closing:
            return
        del self._peers[number]
        self._master.guarded(lambda: self._lose(number, _lost_worker(number, error)))

    def _hello(self, peer: WorkerPeer, message: StreamMessage) -> None:
        number = message["worker"]
        if number >= self._pool.size or peer in self._numbers:
            raise ProtocolError(
                f"worker {number} of {self._pool.size} has sent HELLO, again or for another one"
            )
        before = self._peers.get(number)
        self._peers[number] = peer
        self._numbers[peer] = number
        self._known[number] = Worker(number, message["host"], message["pid"])
        if before is not None:
            # The worker was started again before the end of its old connection was noticed.
            self._numbers.pop(before, None)
            before.drop()
            self._master.on_lost(number, _lost_worker(number, None))
        self._master.on_ready()

    def _lose(self, number: int, cause: Cause) -> None:
        self._master.on_lost(number, cause)
        self._start(number)

    def _start(self, number: int) -> None:
        """Start a worker again, once there are descriptors for it."""
        if self._is_closing or self._place is None:
            return
        try:
            self._pool.start(number, self._place)
        except OSError as error:
            self._wait_for_descriptor(error, lambda: self._start(number))

    def _wait_for_descriptor(self, error: OSError, action: Callable[[], None]) -> None:
        if error.errno not in NONE_LEFT:
            raise error
        loop = asyncio.get_running_loop()
        loop.call_later(_NEXT_TRY, lambda: self._master.guarded(action))

    def _monitor(self, beside: WorkerPeer, token: str) -> None:
        """Hand a connection with a worker's heartbeats to the native thread."""
        peer = next((one for one in self._peers.values() if one.token == token), None)
        if peer is None or peer.target is not None:
            beside.drop()  # that worker is gone already
            return
        try:
            sock, tls = beside.detach()
        except OSError as error:
            self._wait_for_descriptor(error, lambda: self._monitor(beside, token))
            return
        peer.target = self._heartbeats.monitor(sock, self._timeout, tls)


def _lost_worker(number: int, error: Exception | None) -> Cause:
    have = "its connection ended" if error is None else str(error)
    lost = PeerLostError(f"worker {number} of the streaming job is lost", have=have)
    return Cause.of(lost)
