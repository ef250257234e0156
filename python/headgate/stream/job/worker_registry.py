"""The workers of a streaming job as its coordinator sees them: connections, heartbeats, losses."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate._process import MemoryGroup, memory_group_now
from headgate.control.address import CoordinatorAddress
from headgate.control.descriptors import NONE_LEFT
from headgate.control.link import control_key
from headgate.control.server import ControlServer
from headgate.errors import ProtocolError
from headgate.observe.record import Worker
from headgate.stream.job.lost_worker import lost_worker
from headgate.stream.job.messages import CODEC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.control.cause import Cause
    from headgate.control.messages import Message
    from headgate.control.server import Peer
    from headgate.stream.job.pool import WorkerPool

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds in which workers have to end once they were told to.
_STOP: Final = 40.0
#: Seconds between two looks whether workers have ended.
_PAUSE: Final = 0.002
#: Seconds until a worker is tried to be started again, if there was no descriptor for it.
_NEXT_TRY: Final = 1.0


class WorkerListener(Protocol):
    """The coordinator of a job, as its workers' connections call it on the event loop."""

    @property
    def is_over(self) -> bool:
        """True once the job needs no workers any more."""

    def guarded(self, action: Callable[[], None]) -> None:
        """Call an action, and let its errors fail the job."""

    def deploy_if_ready(self) -> None:
        """Deploy the tasks if the worker that has come is the last one."""

    def on_message(self, worker: int, message: Message) -> None:
        """Handle a worker's message."""

    def on_lost(self, worker: int, cause: Cause) -> None:
        """Handle that a worker is gone; it is started again afterwards unless the job is over."""

    def on_notice(self, notice: str) -> None:
        """Take a sentence for the user of the job."""


class WorkerRegistry:
    """Connections with all workers. Used on the event loop only.

    Args:
        pool: starts workers.
        timeout: seconds without a heartbeat after which a worker is lost.
        listener: hears of them.

    Attributes:
        size: number of workers.
    """

    def __init__(self, pool: WorkerPool, timeout: float, listener: WorkerListener) -> None:
        self.size = pool.size
        self._pool = pool
        self._timeout = timeout
        self._listener = listener
        self._peers: dict[int, Peer] = {}
        self._numbers: dict[Peer, int] = {}
        #: By the last HELLO of each worker.
        self._statuses: dict[int, Worker] = {}
        #: The control group of each worker when it said HELLO.
        self._groups: dict[int, MemoryGroup | None] = {}
        self._address: CoordinatorAddress | None = None
        self._server: ControlServer | None = None
        self._is_closing = False

    async def open(self) -> None:
        """Listen, and start all workers."""
        endpoint, job, secret = self._pool.endpoint, os.urandom(16), os.urandom(32)
        key = control_key(secret, job, tls=endpoint.tls)
        self._server = ControlServer(
            endpoint.listen, {job: key}.get, CODEC, self, _LOG, timeout=self._timeout
        )
        self._address = CoordinatorAddress(
            endpoint.host, self._server.port, job, secret, 60.0, self._timeout, endpoint.tls
        )
        await self._server.start()
        for number in range(self.size):
            self._pool.start(number, self._address)

    async def close(self) -> None:
        """Stop all workers, and wait until they have closed their connections."""
        self._is_closing = True
        if self._server is None:
            return
        await self._server.stop_listening()
        self.send_all("STOP")
        # Each answers what was sent before, and closes its connection.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _STOP
        while self._numbers and loop.time() < deadline:
            self._drop_silent()
            await asyncio.sleep(_PAUSE)
        await self._server.close()
        # It refers to this object.
        self._server = None

    @property
    def is_complete(self) -> bool:
        """True if all workers are connected."""
        return len(self._peers) == self.size

    @property
    def connected(self) -> set[int]:
        """Numbers of the workers that are connected."""
        return set(self._peers)

    def host(self, worker: int) -> str:
        """Return the name of a worker's host."""
        return self._statuses[worker].host

    def status(self) -> list[Worker]:
        """Return the connected workers; from any thread."""
        return [self._statuses[number] for number in sorted(self._peers)]

    def peaks(self) -> dict[int, int]:
        """Return the peak resident memory of each worker's process as it said last, also of those that are gone; from any thread."""
        return {number: worker.peak_resident_bytes for number, worker in [*self._statuses.items()]}

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
        for peer, number in list(self._numbers.items()):
            silence = None if self._server is None else self._server.silence(peer)
            if silence is not None:
                _LOG.warning("no heartbeat for %.0f s from worker %d", silence, number)
                peer.drop()

    # Of the server.

    def on_message(self, peer: Peer, message: Message) -> None:
        """Handle a message of a worker. An error costs that worker, which is lost and started again."""
        if message.kind == "HELLO":
            self._hello(peer, message)
        elif (number := self._numbers.get(peer)) is not None:
            if message.kind == "METRICS":
                peak = message["peak_resident_bytes"]
                self._statuses[number] = replace(self._statuses[number], peak_resident_bytes=peak)
            self._listener.on_message(number, message)
        else:
            raise ProtocolError(f"a connection sent {message.kind} before HELLO")

    def on_lost(self, peer: Peer, error: Exception | None) -> None:
        """Handle the end of a worker's connection."""
        number = self._numbers.pop(peer, None)
        if number is None or self._peers.get(number) is not peer or self._is_closing:
            return
        del self._peers[number]
        cause = self._cause(number, error, self._pool.end_of(number))
        self._listener.guarded(lambda: self._lose(number, cause))

    def _hello(self, peer: Peer, message: Message) -> None:
        number = message["worker"]
        if number >= self.size or peer in self._numbers:
            raise ProtocolError(
                f"worker {number} of {self.size} has sent HELLO, again or for another one"
            )
        before = self._peers.get(number)
        self._peers[number] = peer
        self._numbers[peer] = number
        lost = None if before is None else self._cause(number, None, "")
        self._statuses[number] = Worker(number, message["host"], message["pid"])
        self._take_group(number, message["memory_group"])
        if before is not None and lost is not None:
            # The worker was started again before the end of its old connection was noticed.
            self._numbers.pop(before, None)
            before.drop()
            self._listener.on_lost(number, lost)
        self._listener.deploy_if_ready()

    def _take_group(self, number: int, fields: Mapping[str, Any] | None) -> None:
        """Take the control group of a worker; say what a new worker sees in that of the lost one on another host."""
        before, group = self._groups.get(number), None if fields is None else MemoryGroup(**fields)
        self._groups[number] = group
        if before is None or group is None or group.key != before.key:
            return
        if group.kills > before.kills and memory_group_now(before) is None:
            self._listener.on_notice(
                f"the cgroup of worker {number} counts {group.kills - before.kills} more oom_kill than when the worker before "
                "it began, which was lost"
            )

    def _cause(self, number: int, error: Exception | None, end: str) -> Cause:
        peak = self._statuses[number].peak_resident_bytes
        connection = "its connection ended" if error is None else str(error)
        group = self._groups.get(number)
        return lost_worker(number, end, group=group, peak=peak, connection=connection)

    def _lose(self, number: int, cause: Cause) -> None:
        self._listener.on_lost(number, cause)
        if not self._listener.is_over:
            self._start(number)

    def _start(self, number: int) -> None:
        """Start a worker again, once there are descriptors for it."""
        if self._is_closing or self._address is None:
            return
        try:
            self._pool.start(number, self._address)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            loop = asyncio.get_running_loop()
            again = lambda: self._start(number)  # noqa: E731
            loop.call_later(_NEXT_TRY, lambda: self._listener.guarded(again))
