"""The coordinator of a streaming job: deploys tasks, takes checkpoints, and starts anew after failures."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import Cause
from headgate.control.heartbeat import Heartbeats
from headgate.control.place import Place
from headgate.errors import (
    CheckpointError,
    HeadgateError,
    PeerLostError,
)
from headgate.stream.job.bottleneck import Bottleneck, Shares, find_bottleneck, shares
from headgate.stream.job.checkpoints import (
    Abort,
    CheckpointCoordinator,
    Complete,
    Effect,
    FailJob,
    Trigger,
)
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.history import CheckpointHistory
from headgate.stream.job.messages import StreamMessage, text
from headgate.stream.job.metadata import check_restorable, metadata, restored_tasks
from headgate.stream.job.server import WorkerPeer
from headgate.stream.job.sources import JobSources
from headgate.stream.job.status import JobState
from headgate.stream.job.store import CheckpointStore, Completed

if TYPE_CHECKING:
    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.pool import WorkerPool

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds between two looks at the clock, and between two looks at the workers.
_TICK: Final = 0.02
_LOOK: Final = 0.2
#: Seconds in which workers have to answer that they cancelled their tasks.
_CANCEL: Final = 40.0

TaskId = tuple[int, int]


@dataclass(slots=True)
class _Attempt:
    """One run of all tasks.

    Attributes:
        number: counts the attempts of this driver.
        name: unique among all drivers of the checkpoint folder.
        restored: what it continues from.
        placed: the worker of each task.
    """

    number: int
    name: str
    restored: Completed | None
    placed: dict[TaskId, int]
    sources: JobSources | None = None
    checkpoints: CheckpointCoordinator | None = None
    deployed: dict[int, StreamMessage] = field(default_factory=dict)
    ended: set[TaskId] = field(default_factory=set)
    finished: set[TaskId] = field(default_factory=set)
    enumerators: dict[int, dict[str, str]] = field(default_factory=dict)
    #: Workers that still have to cancel their tasks.
    cancelling: set[int] = field(default_factory=set)
    figures: dict[TaskId, Mapping[str, Any]] = field(default_factory=dict)
    shares: dict[TaskId, Shares] = field(default_factory=dict)
    #: Folder of the savepoint that the last checkpoint is.
    last_savepoint: str | None = None
    is_last_asked: bool = False
    is_over: bool = False

    def note(self, task: TaskId, figures: Mapping[str, Any]) -> None:
        """Take a task's report."""
        before = self.figures.get(task)
        self.figures[task] = figures
        if before is not None and (found := shares(before, figures)) is not None:
            self.shares[task] = found


class JobMaster:
    """Runs one job on a thread of its own. Source: Flink's JobMaster.

    Args:
        graph: the job.
        config: its options.
        store: keeps checkpoints; None if there are none.
        pool: starts workers.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: JobConfig,
        store: CheckpointStore | None,
        pool: WorkerPool,
    ) -> None:
        self.graph = graph
        self.history = CheckpointHistory()
        self.restarts = 0
        self.state = JobState.STARTING
        self.failure: HeadgateError | None = None
        self._config = config
        self._store = store
        self._pool = pool
        self._heartbeats: Heartbeats | None = None
        self._commits = SinkCommits(graph, config.name)
        #: Files of the store and the commits of sinks, one after the other.
        self._files = ThreadPoolExecutor(1, thread_name_prefix="headgate-checkpoints")
        self._owner = secrets.token_hex(4)
        self._place: Place | None = None
        self._peers: dict[int, WorkerPeer] = {}
        self._numbers: dict[WorkerPeer, int] = {}
        self._hosts: dict[int, str] = {}
        self._strangers: dict[WorkerPeer, None] = {}
        self._attempt: _Attempt | None = None
        self._attempts = 0
        self._failures = 0
        #: Id of the last checkpoint that is complete, on the thread of files.
        self._completed = 0
        self._in_memory: Completed | None = None
        self._goal: JobState | None = None
        self._savepoints: dict[str, Future[str]] = {}
        self._deploying = False
        self._done = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-stream", daemon=True)

    # From any thread.

    def start(self) -> None:
        """Claim the checkpoints and start the job.

        Raises:
            CheckpointError: the checkpoints cannot be used.
            StreamError: the sinks cannot be used.
        """
        if self._store is not None:
            found = self._store.claim()
            if found is not None:
                self._check(found)
        if self._config.savepoint is not None:
            self._check(CheckpointStore.savepoint(self._config.savepoint))
        self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the end; return False on timeout. Answers Ctrl-C."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_set():
            rest = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
            if rest <= 0:
                return False
            self._done.wait(rest)
        return True

    def request(self, goal: JobState, savepoint: str | None, *, drain: bool) -> Future[str]:
        """Stop, cancel, or take a savepoint (with the goal RUNNING); the future gets the savepoint's folder."""
        answer: Future[str] = Future()
        self._call(lambda: self._requested(goal, savepoint, drain, answer))
        if self._done.is_set():
            self._answer_ended(answer)
        return answer

    def figures(self) -> list[Mapping[str, Any]]:
        """Return the last figures of all tasks."""
        attempt = self._attempt
        if attempt is None:
            return []
        return [attempt.figures.get(task, {"task": list(task)}) for task in self.graph.tasks]

    def shares(self, task: TaskId) -> Shares | None:
        """Return what a task did in the last seconds."""
        attempt = self._attempt
        return None if attempt is None else attempt.shares.get(task)

    def bottleneck(self) -> Bottleneck | None:
        """Return the stage that others wait for, by the last seconds."""
        attempt = self._attempt
        return None if attempt is None else find_bottleneck(self.graph, dict(attempt.shares))

    @property
    def attempt(self) -> int:
        """Number of the current attempt, from 1; 0 before the first."""
        return self._attempts

    def _answer_ended(self, answer: Future[str]) -> None:
        if not answer.done():
            ended = CheckpointError("the job ended before the savepoint was taken")
            answer.set_exception(self.failure or ended)

    def _call(self, action: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._guarded, action)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - fails the job
            self._fail(Cause.of(error), is_final=True)

    # The thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:  # noqa: BLE001 - kept for the caller
            self.failure = self.failure or Cause.of(error).error()
            self.state = JobState.FAILED
        finally:
            self._pool.stop()
            self._files.shutdown()
            self._commits.close()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            for answer in self._savepoints.values():
                if not answer.done():
                    answer.set_exception(
                        self.failure
                        or CheckpointError("the job ended before the savepoint was taken")
                    )
            self._done.set()

    async def _main(self) -> None:
        endpoint = self._pool.endpoint
        server = await self._loop.create_server(
            lambda: WorkerPeer(self._placed, self, self._strangers), endpoint.listen, 0
        )
        port = server.sockets[0].getsockname()[1]
        self._place = Place(
            endpoint.host,
            port,
            secrets.token_bytes(16),
            secrets.token_bytes(32),
            heartbeat_timeout=self._config.heartbeat_timeout,
            tls=endpoint.tls,
        )
        self._heartbeats = Heartbeats()
        try:
            for number in range(self._pool.size):
                self._pool.start(number, self._place)
            looked = 0.0
            while not self._over.is_set():
                self._guarded(self._tick)
                now = self._loop.time()
                if now - looked >= _LOOK:
                    looked = now
                    self._guarded(self._look)
                try:
                    await asyncio.wait_for(self._over.wait(), _TICK)
                except TimeoutError:
                    continue
        finally:
            server.close()
            for peer in list(self._peers.values()):
                peer.send("STOP")
            # Each answers what was sent before, and closes its connection.
            deadline = self._loop.time() + _CANCEL
            while self._numbers and self._loop.time() < deadline:
                await asyncio.sleep(_TICK / 10)
            for peer in list(self._numbers):
                peer.drop()
            for stranger in list(self._strangers):
                stranger.drop()
            await asyncio.sleep(0)
            self._heartbeats.close()

    @property
    def _placed(self) -> Place:
        assert self._place is not None
        return self._place

    def _tick(self) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.checkpoints is not None and not attempt.is_over:
            self._carry_out(attempt, attempt.checkpoints.on_time(_now()))

    def _look(self) -> None:
        """Look for silent workers, and for those that have ended before their connection did, or had none."""
        timeout, now = self._config.heartbeat_timeout, self._loop.time()
        assert self._heartbeats is not None
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
                self._fail(cause)
                self._start_again(number)

    # Workers.

    def on_message(self, peer: WorkerPeer, message: StreamMessage) -> None:
        """Handle a message of a worker."""
        if message.kind == "HEARTBEAT":
            self._guarded(lambda: self._monitor(peer, message["control"]))
            return
        if message.kind == "HELLO":
            self._guarded(lambda: self._hello(peer, message))
            return
        attempt = self._attempt
        number = self._numbers.get(peer)
        if number is None or attempt is None or message["attempt"] != attempt.number:
            return
        self._guarded(lambda: self._of_worker(attempt, number, message))

    def on_lost(self, peer: WorkerPeer, error: Exception | None) -> None:
        """Handle the end of a worker's connection."""
        if peer.target is not None and self._heartbeats is not None:
            self._heartbeats.unmonitor(peer.target)
        number = self._numbers.pop(peer, None)
        if number is None or self._peers.get(number) is not peer or self._over.is_set():
            return
        self._guarded(lambda: self._lost(number, error))

    def _hello(self, peer: WorkerPeer, message: StreamMessage) -> None:
        number = message["worker"]
        if not 0 <= number < self._pool.size:
            peer.close()
            return
        before = self._peers.get(number)
        self._peers[number] = peer
        self._numbers[peer] = number
        self._hosts[number] = message["host"]
        if before is not None:
            # The worker was started again before the end of its old connection was noticed.
            self._numbers.pop(before, None)
            before.drop()
            self._fail(_lost_worker(number, None))
        self._deploy_if_ready()

    def _lost(self, number: int, error: Exception | None) -> None:
        del self._peers[number]
        attempt = self._attempt
        if attempt is not None:
            attempt.cancelling.discard(number)
            if not attempt.is_over:
                self._fail(_lost_worker(number, error))
        self._start_again(number)

    def _start_again(self, number: int) -> None:
        if not self._over.is_set():
            self._pool.start(number, self._placed)
            self._deploy_if_ready()

    def _monitor(self, beside: WorkerPeer, token: str) -> None:
        """Hand a connection with a worker's heartbeats to the native thread."""
        peer = next((one for one in self._peers.values() if one.token == token), None)
        if peer is None or peer.target is not None or self._heartbeats is None:
            beside.drop()  # that worker is gone already
            return
        sock, tls = beside.detach()
        peer.target = self._heartbeats.monitor(sock, self._config.heartbeat_timeout, tls)

    def _of_worker(self, attempt: _Attempt, number: int, message: StreamMessage) -> None:
        kind = message.kind
        if kind == "CANCELLED":
            attempt.cancelling.discard(number)
            self._deploy_if_ready()
            return
        if attempt.is_over:
            return
        if kind == "DEPLOYED":
            attempt.deployed[number] = message
            if len(attempt.deployed) == self._pool.size:
                self._connect(attempt)
            return
        if kind == "METRICS":
            for one in message["tasks"]:
                attempt.note(tuple(one["task"]), one)
            return
        if kind == "FAILED":
            self._fail(Cause.from_fields(message["cause"]))
            return
        task = tuple(message["task"])
        if kind == "ENDED":
            attempt.ended.add(task)
            if len(attempt.ended) == len(attempt.placed):
                self._last_checkpoint(attempt, attempt.last_savepoint)
        elif kind == "FINISHED":
            attempt.finished.add(task)
            if len(attempt.finished) == len(attempt.placed):
                self._end(self._goal or JobState.FINISHED)
        elif kind == "ACKNOWLEDGED" and attempt.checkpoints is not None:
            self._acknowledged(attempt, task, message)
        elif kind == "DECLINED" and attempt.checkpoints is not None:
            effects = attempt.checkpoints.on_declined(
                message["checkpoint"], message["reason"], _now()
            )
            self._carry_out(attempt, effects)
        elif attempt.sources is not None:
            attempt.sources.handle(message)

    # Attempts.

    def _deploy_if_ready(self) -> None:
        attempt = self._attempt
        is_free = attempt is None or (attempt.is_over and not attempt.cancelling)
        if not is_free or self._deploying or len(self._peers) < self._pool.size:
            return
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        self._deploying = True
        delay = 0.0 if attempt is None else self._config.restart_delay
        self._loop.call_later(delay, lambda: self._guarded(self._restore))

    def _restore(self) -> None:
        """Read what to continue from, and commit what it has, on the thread of files."""

        def restore() -> Completed | None:
            found = self._in_memory
            if self._store is not None:
                self._store.check_owner()
                found = self._store.latest()
            if found is None and self._config.savepoint is not None:
                found = CheckpointStore.savepoint(self._config.savepoint)
            if found is not None:
                self._check(found)
            self._commits.restore(found)
            self._completed = 0 if found is None else found.checkpoint
            return found

        self._in_files(restore, self._deploy)

    def _deploy(self, restored: Completed | None) -> None:
        self._deploying = False
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        if self._attempt is not None and not self._attempt.is_over:
            return  # A failure while this one was prepared has led to another one.
        if len(self._peers) < self._pool.size:
            return  # Lost meanwhile: its HELLO deploys.
        self._attempts += 1
        number = self._attempts
        placed = {task: at % self._pool.size for at, task in enumerate(self.graph.tasks)}
        attempt = _Attempt(number, f"{self._owner}-{number}", restored, placed)
        self._attempt = attempt
        attempt.sources = JobSources(
            self.graph,
            None if restored is None else restored.fields,
            lambda kind, task, fields: self._call(
                lambda: self._to_task(attempt, kind, task, fields)
            ),
            lambda error: self._call(lambda: self._fail_attempt(attempt, Cause.of(error))),
        )
        tasks: dict[int, list[Any]] = {worker: [] for worker in range(self._pool.size)}
        for stage in self.graph.stages:
            fields = None if restored is None else restored.fields
            base = "" if restored is None else restored.base
            for at, own in enumerate(restored_tasks(self.graph, stage, fields, base)):
                own |= {
                    "task": [stage.number, at],
                    "attempt": attempt.name,
                    "folders": self._folders(attempt, stage.number, at),
                    "retained": self._config.retained,
                }
                tasks[placed[stage.number, at]].append(own)
        checkpoint = None if restored is None else restored.checkpoint
        for worker, peer in self._peers.items():
            peer.send("DEPLOY", attempt=number, restored=checkpoint, tasks=tasks[worker])

    def _folders(self, attempt: _Attempt, stage: int, index: int) -> dict[str, str]:
        store = self._store
        if store is None:
            return {}
        return {
            node.uid: f"{store.uri}/{store.task_folder(attempt.name, stage, index, node.uid)}"
            for node in self.graph.stages[stage].operators
        }

    def _connect(self, attempt: _Attempt) -> None:
        """Tell each task where its channels are, and start the enumerators."""
        partitions: dict[TaskId, list[list[Any]]] = {}
        for message in attempt.deployed.values():
            where = message["host"], message["port"], message["process"]
            for stage, index, found in message["partitions"]:
                partitions[stage, index] = [[where[0], where[1], one, where[2]] for one in found]
        inputs: dict[int, list[Any]] = {worker: [] for worker in self._peers}
        for (number, at), worker in attempt.placed.items():
            channels = [
                [host, port, partition, at, process]
                for sender, edge in self.graph.inputs_of(number)
                for index in range(sender.parallelism)
                for host, port, partition, process in [partitions[sender.number, index][edge]]
            ]
            inputs[worker].append([number, at, channels])
        for worker, peer in self._peers.items():
            peer.send("CONNECT", attempt=attempt.number, inputs=inputs[worker])
        assert attempt.sources is not None
        attempt.sources.start(lambda task: self._hosts[attempt.placed[task]])
        first = 1 + max(self._completed, self._last_id)
        attempt.checkpoints = CheckpointCoordinator(
            self._config.checkpoints, attempt.placed, first, _now()
        )
        self.state = JobState.RUNNING
        if self._goal is not None:
            self._stop(attempt, self._stop_savepoint, drain=self._drains)

    _last_id = 0
    _stop_savepoint: str | None = None
    _drains = False

    def _to_task(self, attempt: _Attempt, kind: str, task: TaskId, fields: dict[str, Any]) -> None:
        if attempt is self._attempt and not attempt.is_over:
            peer = self._peers.get(attempt.placed[task])
            if peer is not None:
                peer.send(kind, attempt=attempt.number, task=list(task), **fields)

    def _to_all(self, attempt: _Attempt, kind: str, **fields: Any) -> None:
        for peer in self._peers.values():
            peer.send(kind, attempt=attempt.number, **fields)

    def _fail_attempt(self, attempt: _Attempt, cause: Cause) -> None:
        if attempt is self._attempt and not attempt.is_over:
            self._fail(cause)

    def _fail(self, cause: Cause, *, is_final: bool = False) -> None:
        """End the attempt because of a failure; start another one unless there were too many."""
        if self._over.is_set():
            return
        attempt = self._attempt
        _LOG.warning(
            "attempt %d of %s failed: %s", self._attempts, self._config.name, cause.summary
        )
        self._close_attempt(attempt, cause.summary)
        self._failures += 1
        self._deploying = False
        can_restore = self._store is not None
        if is_final or not can_restore or self._failures > self._config.restarts:
            self.failure = cause.error()
            self._end(JobState.FAILED)
            return
        self.restarts += 1
        self.state = JobState.RESTARTING
        self._deploy_if_ready()

    def _close_attempt(self, attempt: _Attempt | None, reason: str) -> None:
        if attempt is None or attempt.is_over:
            return
        attempt.is_over = True
        if attempt.checkpoints is not None:
            self._last_id = max(self._last_id, attempt.checkpoints.next_id - 1)
            for effect in attempt.checkpoints.close(reason):
                if isinstance(effect, Abort):
                    self._note_failed(effect)
        if attempt.sources is not None:
            self._files.submit(attempt.sources.close)
        attempt.cancelling = set(self._peers)
        self._to_all(attempt, "CANCEL")
        number = attempt.number
        self._loop.call_later(_CANCEL, lambda: self._guarded(lambda: self._drop_late(number)))

    def _drop_late(self, number: int) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.number == number:
            for worker in list(attempt.cancelling):
                if worker in self._peers:
                    self._peers[worker].drop()

    def _end(self, state: JobState) -> None:
        self._close_attempt(self._attempt, "the job ends")
        self.state = state
        # Workers stop as soon as they have read what was sent to them.
        self._over.set()

    # Checkpoints.

    def _carry_out(self, attempt: _Attempt, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Trigger):
                self._trigger(attempt, effect)
            elif isinstance(effect, Complete):
                self._complete(attempt, effect)
            elif isinstance(effect, Abort):
                self._note_failed(effect)
                self._to_all(attempt, "ABORT", checkpoint=effect.checkpoint, reason=effect.reason)
                assert attempt.sources is not None
                attempt.sources.abort(effect.checkpoint)
            elif isinstance(effect, FailJob):
                error = CheckpointError(
                    f"too many checkpoints failed, the last one because {effect.reason}"
                )
                self._fail(Cause.of(error))

    def _trigger(self, attempt: _Attempt, trigger: Trigger) -> None:
        checkpoint = trigger.checkpoint
        now = int(time.time() * 1000)
        self.history.begin(checkpoint, now, trigger.savepoint)
        attempt.enumerators[checkpoint] = {}
        fields = {
            "checkpoint": checkpoint,
            "timestamp": now,
            "alignment": "aligned" if trigger.savepoint else self._config.alignment,
            "timeout": self._config.aligned_timeout,
            "savepoint": trigger.savepoint,
            "stop": trigger.stop,
        }

        def taken(stage: int, uid: str, state: bytes | None, error: HeadgateError | None) -> None:
            self._call(lambda: self._enumerated(attempt, fields, stage, uid, state, error))

        assert attempt.sources is not None
        attempt.sources.checkpoint(checkpoint, taken)

    def _enumerated(
        self,
        attempt: _Attempt,
        fields: dict[str, Any],
        stage: int,
        uid: str,
        state: bytes | None,
        error: HeadgateError | None,
    ) -> None:
        if attempt.is_over or attempt.checkpoints is None:
            return
        checkpoint = fields["checkpoint"]
        if state is None:
            reason = f"the enumerator of {uid} has no state: {error}"
            self._carry_out(attempt, attempt.checkpoints.on_declined(checkpoint, reason, _now()))
            return
        attempt.enumerators.setdefault(checkpoint, {})[uid] = text(state)
        # Before any message of the enumerator that follows its state: those come later on this thread.
        self._to_all(attempt, "TRIGGER", stage=stage, **fields)

    def _acknowledged(self, attempt: _Attempt, task: TaskId, message: StreamMessage) -> None:
        state = message["state"]
        stats = self.history.find(message["checkpoint"])
        if stats is not None:
            stats.bytes += state["bytes"]
            stats.barrier = max(stats.barrier, state["start_delay"])
            stats.sync = max(stats.sync, state["sync"])
            stats.alignment = max(stats.alignment, state["alignment"])
        assert attempt.checkpoints is not None
        effects = attempt.checkpoints.on_acknowledged(task, message["checkpoint"], state, _now())
        self._carry_out(attempt, effects)

    def _complete(self, attempt: _Attempt, effect: Complete) -> None:
        """Write the checkpoint's metadata and commit, on the thread of files; then tell the tasks."""
        checkpoint, trigger = effect.checkpoint, effect.trigger
        enumerators = attempt.enumerators.pop(checkpoint)
        is_checkpoint = trigger.savepoint is None or trigger.stop

        def write() -> None:
            base = trigger.savepoint or ("" if self._store is None else self._store.uri)
            fields = metadata(
                self.graph, checkpoint, effect.states, enumerators, self._completed, base
            )
            if not is_checkpoint:
                self._write_savepoint(trigger, fields)
                return
            if trigger.savepoint is not None:
                CheckpointStore.write_savepoint(trigger.savepoint, fields)
            if self._store is not None:
                entry = fields
                if trigger.savepoint is not None:
                    entry = {"checkpoint": checkpoint, "savepoint": trigger.savepoint}
                self._store.complete(entry)
            self._commits.commit(checkpoint, fields)
            self._completed = checkpoint
            self._delete_old(attempt)

        self._in_files(write, lambda _: self._completed_by(attempt, effect))

    def _write_savepoint(self, trigger: Trigger, fields: Mapping[str, Any]) -> None:
        """Complete a savepoint of a job that goes on, whatever becomes of the savepoint."""
        assert trigger.savepoint is not None
        try:
            CheckpointStore.write_savepoint(trigger.savepoint, fields)
        except CheckpointError as error:
            failed = Abort(trigger.checkpoint, error.summary, trigger)
            self._call(lambda: self._note_failed(failed))

    def _delete_old(self, attempt: _Attempt) -> None:
        if self._store is None:
            return
        try:
            self._store.delete_old(attempt.name)
        except CheckpointError as error:
            # The checkpoint is complete. What is left is deleted after the next one.
            _LOG.warning("old checkpoints were not deleted: %s", error.summary)

    def _completed_by(self, attempt: _Attempt, effect: Complete) -> None:
        checkpoint, trigger = effect.checkpoint, effect.trigger
        stats = self.history.find(checkpoint)
        if stats is not None and stats.status == "pending":
            stats.status = "complete"
            stats.duration = int(time.time() * 1000) - stats.triggered
        if trigger.savepoint is not None:
            answer = self._savepoints.pop(trigger.savepoint, None)
            if answer is not None and not answer.done():
                answer.set_result(trigger.savepoint)
        self._failures = 0
        if attempt.is_over:
            return
        is_savepoint = trigger.savepoint is not None
        self._to_all(attempt, "COMPLETE", checkpoint=checkpoint, savepoint=is_savepoint)
        assert attempt.sources is not None
        if not is_savepoint:
            attempt.sources.complete(checkpoint)
        if trigger.stop:
            self.state = JobState.FINISHING
            self._to_all(attempt, "FINISH")

    def _note_failed(self, effect: Abort) -> None:
        stats = self.history.find(effect.checkpoint)
        if stats is not None:
            stats.status = "failed"
            stats.reason = effect.reason
        savepoint = effect.trigger.savepoint
        if savepoint is not None and not effect.trigger.stop:
            answer = self._savepoints.pop(savepoint, None)
            if answer is not None and not answer.done():
                answer.set_exception(
                    CheckpointError(f"the savepoint {savepoint} was given up: {effect.reason}")
                )

    def _last_checkpoint(self, attempt: _Attempt, savepoint: str | None) -> None:
        if attempt.is_last_asked:
            return
        attempt.is_last_asked = True
        assert attempt.checkpoints is not None
        self._carry_out(attempt, attempt.checkpoints.request(savepoint, stop=True, now=_now()))

    # Requests.

    def _requested(
        self, goal: JobState, savepoint: str | None, drain: bool, answer: Future[str]
    ) -> None:
        attempt = self._attempt
        if savepoint is not None:
            self._savepoints[savepoint] = answer
        elif goal is JobState.CANCELLED:
            answer.set_result("")
            self._goal = goal
            self._end(JobState.CANCELLED)
            return
        if goal is not JobState.RUNNING:
            self._goal = goal
            self._stop_savepoint, self._drains = savepoint, drain
            if savepoint is None:
                answer.set_result("")
        if attempt is None or attempt.is_over or attempt.checkpoints is None:
            if goal is JobState.RUNNING and savepoint is not None:
                del self._savepoints[savepoint]
                answer.set_exception(
                    CheckpointError("the job is not running, so no savepoint can be taken")
                )
            return
        if goal is JobState.RUNNING:
            effects = attempt.checkpoints.request(savepoint, stop=False, now=_now())
            self._carry_out(attempt, effects)
        else:
            self._stop(attempt, savepoint, drain=drain)

    def _stop(self, attempt: _Attempt, savepoint: str | None, *, drain: bool) -> None:
        if drain:
            attempt.last_savepoint = savepoint
            self._to_all(attempt, "DRAIN")
            if len(attempt.ended) == len(attempt.placed):
                self._last_checkpoint(attempt, savepoint)
        else:
            self._last_checkpoint(attempt, savepoint)

    def _check(self, found: Completed) -> None:
        check_restorable(self.graph, found.fields, allow_dropped=self._config.allow_dropped_state)

    def _in_files(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run work on the thread of files, then an action on this thread; an error fails the job."""
        attempt = self._attempt

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - fails the attempt
                cause = Cause.of(error)
                is_final = isinstance(error, CheckpointError) and "another driver" in error.summary
                self._call(lambda: self._files_failed(attempt, cause, is_final=is_final))
            else:
                self._call(lambda: then(result))

        self._files.submit(run)

    def _files_failed(self, attempt: _Attempt | None, cause: Cause, *, is_final: bool) -> None:
        if attempt is self._attempt:
            self._fail(cause, is_final=is_final)


def _now() -> int:
    return time.monotonic_ns() // 1_000_000


def _lost_worker(number: int, error: Exception | None) -> Cause:
    have = "its connection ended" if error is None else str(error)
    lost = PeerLostError(f"worker {number} of the streaming job is lost", have=have)
    return Cause.of(lost)


def own_host() -> str:
    """Return the name of this host."""
    return socket.gethostname()
