"""The workers of a streaming job that are connected: which are silent or lost, and are started again."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.control.cause import Cause
from headgate.control.heartbeat import Heartbeats
from headgate.control.place import Place
from headgate.errors import PeerLostError
from headgate.stream.job.server import WorkerPeer
from headgate.stream.job.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stream.job.messages import StreamMessage
    from headgate.stream.job.pool import WorkerPool

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds between two looks for the end of connections.
_LOOK: Final = 0.002


class WorkersListener(Protocol):
    """What the coordinator does when it hears of workers, on its event loop."""

    def worker_joined(self) -> None:
        """Handle that a worker has connected, or was started again."""

    def worker_said(self, number: int, message: StreamMessage) -> None:
        """Handle a message about an attempt."""

    def worker_lost(self, number: int, cause: Cause) -> None:
        """Handle the end of a worker's connection."""

    def worker_failed(self, cause: Cause) -> None:
        """Handle that a worker ended before it connected, or was started again before the end of its connection."""


class Workers:
    """The workers that are connected. Made by :meth:`open`; used on the coordinator's event loop.

    Args:
        pool: starts them.
        place: of the coordinator.
        listener: hears of them.
        over: set once the job ends: no worker is started any more.
        guard: calls a function, and fails the job by its error.
        server: closed with them.
    """

    def __init__(
        self,
        pool: WorkerPool,
        place: Place,
        listener: WorkersListener,
        over: asyncio.Event,
        guard: Callable[[Callable[[], None]], None],
        server: asyncio.Server,
    ) -> None:
        self._pool, self._place, self._listener = pool, place, listener
        self._over, self._guard = over, guard
        self._heartbeats = Heartbeats()
        self._server = server
        self._peers: dict[int, WorkerPeer] = {}
        self._numbers: dict[WorkerPeer, int] = {}
        #: What each worker said last when it connected.
        self._known: dict[int, WorkerStatus] = {}
        self._strangers: dict[WorkerPeer, None] = {}

    @classmethod
    async def open(
        cls,
        pool: WorkerPool,
        listener: WorkersListener,
        over: asyncio.Event,
        guard: Callable[[Callable[[], None]], None],
        heartbeat_timeout: float,
    ) -> Workers:
        """Listen, and start all workers.

        Args:
            pool: starts them.
            listener: hears of them.
            over: set once the job ends.
            guard: calls a function, and fails the job by its error.
            heartbeat_timeout: seconds without a heartbeat after which a worker is lost.
        """
        endpoint = pool.endpoint
        # It accepts nobody before there is somebody to tell.
        made: list[Workers] = []
        server = await asyncio.get_running_loop().create_server(
            lambda: made[0].connection(),  # noqa: PLW0108 - there is none yet
            endpoint.listen,
            0,
            start_serving=False,
        )
        place = Place(
            endpoint.host,
            server.sockets[0].getsockname()[1],
            secrets.token_bytes(16),
            secrets.token_bytes(32),
            heartbeat_timeout=heartbeat_timeout,
            tls=endpoint.tls,
        )
        made.append(cls(pool, place, listener, over, guard, server))
        await server.start_serving()
        return made[0]

    def connection(self) -> WorkerPeer:
        """Return the protocol of a new connection."""
        return WorkerPeer(self._place, self, self._strangers)

    def start(self) -> None:
        """Start all workers."""
        for number in range(self._pool.size):
            self._pool.start(number, self._place)

    async def close(self, grace: float) -> None:
        """Stop all workers, and wait for the ends of their connections.

        Args:
            grace: seconds after which connections are dropped.
        """
        self._server.close()
        for peer in list(self._peers.values()):
            peer.send("STOP")
        # Each answers what was sent before, and closes its connection.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while self._numbers and loop.time() < deadline:  # noqa: ASYNC110 - a peer's end has no event
            await asyncio.sleep(_LOOK)
        for peer in (*self._numbers, *self._strangers):
            peer.drop()
        await asyncio.sleep(0)
        self._heartbeats.close()

    @property
    def are_complete(self) -> bool:
        """True while all workers are connected."""
        return len(self._peers) == self._pool.size

    @property
    def connected(self) -> set[int]:
        """Numbers of the connected workers."""
        return set(self._peers)

    def host_of(self, number: int) -> str:
        """Return the name of a worker's host."""
        return self._known[number].host

    def status(self) -> list[WorkerStatus]:
        """Return the connected workers; from any thread."""
        return [self._known[number] for number in sorted(self._peers)]

    def send(self, number: int, kind: str, **fields: Any) -> None:
        """Send a message to a worker, if it is connected."""
        peer = self._peers.get(number)
        if peer is not None:
            peer.send(kind, **fields)

    def send_all(self, kind: str, **fields: Any) -> None:
        """Send a message to all workers that are connected."""
        for peer in self._peers.values():
            peer.send(kind, **fields)

    def drop(self, number: int) -> None:
        """End a worker's connection at once."""
        peer = self._peers.get(number)
        if peer is not None:
            peer.drop()

    def look(self) -> None:
        """Look for silent workers, and for those that have ended before their connection did, or had none."""
        timeout, now = self._place.heartbeat_timeout, asyncio.get_running_loop().time()
        for number, peer in list(self._peers.items()):
            if peer.target is None:
                silence = now - peer.since if now - peer.since > timeout else None
            else:
                silence = self._heartbeats.silence(peer.target)
            if silence is not None:
                _LOG.warning("no heartbeat for %.0f s from worker %d", silence, number)
                peer.drop()
        for number, cause in self._pool.ended().items():
            ended = self._peers.get(number)
            if ended is not None:
                ended.drop()
            else:
                self._listener.worker_failed(cause)
                self._start_again(number)

    # What connections tell.

    def on_message(self, peer: WorkerPeer, message: StreamMessage) -> None:
        """Handle a message of a worker."""
        if message.kind == "HEARTBEAT":
            self._guard(lambda: self._monitor(peer, message["control"]))
        elif message.kind == "HELLO":
            self._guard(lambda: self._hello(peer, message))
        else:
            number = self._numbers.get(peer)
            if number is not None:
                self._guard(lambda: self._listener.worker_said(number, message))

    def on_lost(self, peer: WorkerPeer, error: Exception | None) -> None:
        """Handle the end of a worker's connection."""
        if peer.target is not None:
            self._heartbeats.unmonitor(peer.target)
        number = self._numbers.pop(peer, None)
        if number is None or self._peers.get(number) is not peer or self._over.is_set():
            return
        self._guard(lambda: self._lost(number, error))

    def _hello(self, peer: WorkerPeer, message: StreamMessage) -> None:
        number = message["worker"]
        if not 0 <= number < self._pool.size:
            peer.close()
            return
        before = self._peers.get(number)
        self._peers[number] = peer
        self._numbers[peer] = number
        self._known[number] = WorkerStatus(number, message["host"], message["pid"])
        if before is not None:
            # The worker was started again before the end of its old connection was noticed.
            self._numbers.pop(before, None)
            before.drop()
            self._listener.worker_failed(_lost_worker(number, None))
        self._listener.worker_joined()

    def _lost(self, number: int, error: Exception | None) -> None:
        del self._peers[number]
        self._listener.worker_lost(number, _lost_worker(number, error))
        self._start_again(number)

    def _start_again(self, number: int) -> None:
        if not self._over.is_set():
            self._pool.start(number, self._place)
            self._listener.worker_joined()

    def _monitor(self, beside: WorkerPeer, token: str) -> None:
        """Hand a connection with a worker's heartbeats to the native thread."""
        peer = next((one for one in self._peers.values() if one.token == token), None)
        if peer is None or peer.target is not None:
            beside.drop()  # that worker is gone already
            return
        sock, tls = beside.detach()
        peer.target = self._heartbeats.monitor(sock, self._place.heartbeat_timeout, tls)


def _lost_worker(number: int, error: Exception | None) -> Cause:
    have = "its connection ended" if error is None else str(error)
    return Cause.of(PeerLostError(f"worker {number} of the streaming job is lost", have=have))
