"""The coordinator of a streaming job: deploys tasks, has checkpoints taken, and starts anew after failures."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import Cause
from headgate.errors import CheckpointError, HeadgateError, ProtocolError
from headgate.stream.job.attempt import Attempt, TaskId
from headgate.stream.job.bottleneck import Bottleneck, Shares, find_bottleneck
from headgate.stream.job.completion import Checkpointing
from headgate.stream.job.crew import Crew
from headgate.stream.job.metadata import restored_tasks
from headgate.stream.job.notices import FAILED, Notices, after_restarts
from headgate.stream.job.reports import OF_READERS, check_report
from headgate.stream.job.sources import JobSources
from headgate.stream.job.status import EndedAttempt, JobState, WorkerStatus

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.checkpoints import Trigger
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.history import CheckpointStats
    from headgate.stream.job.pool import WorkerPool
    from headgate.stream.job.store import CheckpointStore, Completed

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds between two looks at the clock, and between two looks at the workers.
_TICK: Final = 0.02
_LOOK: Final = 0.2
#: Seconds in which workers have to answer that they cancelled their tasks.
_CANCEL: Final = 40.0
#: Seconds between two looks at a job that is waited for, so that Ctrl-C is answered.
_NAP: Final = 0.5


class JobMaster:
    """Runs one job on a thread of its own. Source: Flink's JobMaster.

    Args:
        graph: the job.
        config: its options.
        store: keeps checkpoints; None if there are none.
        pool: starts workers.

    Attributes:
        graph: the job.
        restarts: failures after which it was started anew.
        state, failure: what it does, and why it failed.
        ended_attempts: the last attempts that failed.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: JobConfig,
        store: CheckpointStore | None,
        pool: WorkerPool,
    ) -> None:
        self.graph = graph
        self.restarts = 0
        self.state = JobState.STARTING
        self.failure: HeadgateError | None = None
        self.ended_attempts: deque[EndedAttempt] = deque(maxlen=16)
        self.notices = Notices(config.name)
        #: Called by the job's thread once nothing changes any more.
        self.when_over: Callable[[], object] = lambda: None
        self._config = config
        self._pool = pool
        # They end with this object, not with a garbage collection: a job may hold much, such as its functions.
        own: JobMaster = weakref.proxy(self)
        self._crew = Crew(pool, config.heartbeat_timeout, own)
        self._checkpointing = Checkpointing(graph, config, store, own)
        self._attempt: Attempt | None = None
        self._attempts = 0
        #: Failures since the last complete checkpoint.
        self._failures = 0
        #: True from the wish for an attempt until it is deployed or its restore has failed: one at a time.
        self._is_deploying = False
        #: What the user wants the job to become, and with which savepoint.
        self._goal: JobState | None = None
        self._savepoint: str | None = None
        self._last_answer: Future[str] | None = None
        self._answers: list[Future[str]] = []
        self._done = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-stream", daemon=True)

    # From any thread.

    def start(self) -> None:
        """Claim the checkpoints and start the job.

        Raises:
            CheckpointError: the checkpoints cannot be used.
        """
        try:
            self._checkpointing.claim()
        except BaseException:
            self._loop.close()
            self._checkpointing.close()
            raise
        self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the end; return False on timeout. Answers Ctrl-C."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._done.is_set() and (rest := deadline - time.monotonic()) > 0:
            self._done.wait(min(_NAP, rest))
        return self._done.is_set()

    def request(self, goal: JobState, savepoint: str | None) -> Future[str]:
        """Stop, drain (FINISHED), cancel, or take a savepoint (RUNNING); the future gets the savepoint's folder."""
        answer: Future[str] = Future()
        self._answers.append(answer)
        self.call(lambda: self._requested(goal, savepoint, answer))
        if self._done.is_set():
            self._answer_ended(answer)
        return answer

    def _answer_ended(self, answer: Future[str]) -> None:
        with suppress(InvalidStateError):  # the usual case: it has its answer
            ended = CheckpointError(
                "the job ended before the savepoint was taken",
                remedy="stop(savepoint=...) for one at the end · savepoint() while the job runs",
            )
            answer.set_exception(copy.copy(self.failure) or ended)

    def checkpoints(self) -> list[CheckpointStats]:
        """Return figures of the last checkpoints, the oldest first."""
        return self._checkpointing.history.all()

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

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that are connected."""
        return self._crew.status()

    def bottleneck(self) -> Bottleneck | None:
        """Return the stage that others wait for, by the last seconds."""
        attempt = self._attempt
        return None if attempt is None else find_bottleneck(self.graph, dict(attempt.shares))

    @property
    def attempt(self) -> int:
        """Number of the current attempt, from 1; 0 before the first."""
        return self._attempts

    def call(self, action: Callable[[], None]) -> None:
        """Call an action on the coordinator's thread; dropped once that has ended."""
        try:
            self._loop.call_soon_threadsafe(self.guarded, action)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def guarded(self, action: Callable[[], None]) -> None:
        """Call an action, and let its errors fail the job."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - fails the job
            self._fail(cause := Cause.of(error), is_final=not cause.is_shortage)

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
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # Its thread calls this loop, which drops the calls once it is closed.
            self._loop.close()
            self._checkpointing.close()
            self._done.set()
            for answer in self._answers:
                self._answer_ended(answer)
            self.when_over()

    async def _main(self) -> None:
        try:
            await self._crew.open()
            looked = 0.0
            while not self._over.is_set():
                self.guarded(self._tick)
                now = self._loop.time()
                if now - looked >= _LOOK:
                    looked = now
                    self.guarded(self._crew.look)
                try:
                    await asyncio.wait_for(self._over.wait(), _TICK)
                except TimeoutError:
                    continue
        finally:
            await self._crew.close()

    def _tick(self) -> None:
        if self._attempt is not None:
            self._checkpointing.tick(self._attempt)

    # Of the workers.

    def on_ready(self) -> None:
        """Deploy the tasks once all workers are there."""
        self._deploy_if_ready()

    def on_lost(self, worker: int, cause: Cause) -> None:
        """End the attempt of a lost worker."""
        attempt = self._attempt
        if attempt is not None:
            attempt.cancelling.discard(worker)
        if attempt is None or not attempt.is_over:
            self._fail(cause)
        self._deploy_if_ready()

    def on_message(self, worker: int, message: Message) -> None:
        """Handle a worker's message about the current attempt.

        Raises:
            ProtocolError: it cannot be true.
        """
        attempt = self._attempt
        handle = _HANDLERS.get(message.kind)
        if handle is None:
            raise ProtocolError(f"worker {worker} has sent {message.kind}, which is no report")
        if attempt is None or message["attempt"] != attempt.number:
            return
        if message.kind == "CANCELLED":
            attempt.cancelling.discard(worker)
            self._deploy_if_ready()
        elif not attempt.is_over:
            check_report(self.graph, attempt, worker, message, self.state)
            handle(self, attempt, worker, message)

    def _deployed(self, attempt: Attempt, worker: int, message: Message) -> None:
        attempt.deployed[worker] = message
        if len(attempt.deployed) == self._crew.size:
            self._connect(attempt)

    def _figures(self, attempt: Attempt, _: int, message: Message) -> None:
        for one in message["tasks"]:
            attempt.note(tuple(one["task"]), one)
            self.notices.note(one.get("dropped", {}))

    def _failed(self, _: Attempt, __: int, message: Message) -> None:
        self._fail(Cause.from_fields(message["cause"]))

    def _ended(self, attempt: Attempt, _: int, message: Message) -> None:
        attempt.ended.add(tuple(message["task"]))
        if attempt.has_ended:
            self._last_checkpoint(attempt)

    def _finished(self, attempt: Attempt, _: int, message: Message) -> None:
        attempt.finished.add(tuple(message["task"]))
        if attempt.has_finished:
            self._end(self._goal or JobState.FINISHED)

    def _acknowledged(self, attempt: Attempt, _: int, message: Message) -> None:
        task = tuple(message["task"])
        self._checkpointing.acknowledged(attempt, task, message["checkpoint"], message["state"])

    def _declined(self, attempt: Attempt, _: int, message: Message) -> None:
        self._checkpointing.declined(attempt, message["checkpoint"], message["reason"])

    # Attempts.

    def _deploy_if_ready(self) -> None:
        attempt = self._attempt
        is_free = attempt is None or (attempt.is_over and not attempt.cancelling)
        is_wanted = self.state in {JobState.STARTING, JobState.RESTARTING}
        if not is_free or not is_wanted or self._is_deploying or not self._crew.is_complete:
            return
        self._is_deploying = True
        delay = 0.0 if attempt is None else self._config.restart_delay
        number = self._attempts + 1
        restore = lambda: self._checkpointing.restore(number, self._deploy)  # noqa: E731
        self._loop.call_later(delay, lambda: self.guarded(restore))

    def _deploy(self, restored: Completed | None) -> None:
        """Have all workers make their tasks."""
        self._is_deploying = False
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        if self._checkpointing.is_final(restored):
            self._end(self._goal or JobState.FINISHED)
            return
        if not self._crew.is_complete:
            return  # Lost meanwhile: its HELLO deploys.
        self._attempts += 1
        name = self._checkpointing.name(self._attempts)
        size = self._crew.size
        placed = {task: at % size for at, task in enumerate(self.graph.tasks)}
        fields, base = (None, "") if restored is None else (restored.fields, restored.base)
        sources = JobSources(
            self.graph,
            fields,
            lambda kind, task, more: self.call(lambda: self._to_task(attempt, kind, task, more)),
            lambda error: self.call(lambda: self.fail(attempt, Cause.of(error))),
        )
        attempt = self._attempt = Attempt(self._attempts, name, restored, placed, sources)
        tasks: dict[int, list[Any]] = {worker: [] for worker in range(size)}
        for stage in self.graph.stages:
            for at, own in enumerate(restored_tasks(self.graph, stage, fields, base)):
                own |= {
                    "task": [stage.number, at],
                    "attempt": name,
                    "retained": self._config.retained,
                    "allow_dropped_state": self._config.allow_dropped_state,
                    **self._checkpointing.folders(name, stage.number, at),
                }
                tasks[placed[stage.number, at]].append(own)
        checkpoint = None if restored is None else restored.checkpoint
        for worker, own_tasks in tasks.items():
            self._crew.send(
                worker,
                "DEPLOY",
                attempt=attempt.number,
                mode=self._config.mode,
                restored=checkpoint,
                tasks=own_tasks,
            )

    def _connect(self, attempt: Attempt) -> None:
        """Tell each task where its channels are, and start the enumerators."""
        partitions: dict[TaskId, list[list[Any]]] = {}
        for message in attempt.deployed.values():
            host, port, process = message["host"], message["port"], message["process"]
            for stage, index, found in message["partitions"]:
                partitions[stage, index] = [[host, port, one, process] for one in found]
        inputs: dict[int, list[Any]] = {worker: [] for worker in range(self._crew.size)}
        for (number, at), worker in attempt.placed.items():
            channels = [
                [host, port, partition, at, process]
                for sender, edge in self.graph.inputs_of(number)
                for index in range(sender.parallelism)
                for host, port, partition, process in [partitions[sender.number, index][edge]]
            ]
            inputs[worker].append([number, at, channels])
        for worker, own in inputs.items():
            self._crew.send(worker, "CONNECT", attempt=attempt.number, inputs=own)
        attempt.sources.start(lambda task: self._crew.host(attempt.placed[task]))
        self._checkpointing.begin(attempt)
        self.state = JobState.RUNNING
        if self._goal is not None:
            self._stop(attempt, self._goal)

    def _to_task(self, attempt: Attempt, kind: str, task: TaskId, fields: dict[str, Any]) -> None:
        if attempt is self._attempt and not attempt.is_over:
            worker = attempt.placed[task]
            self._crew.send(worker, kind, attempt=attempt.number, task=list(task), **fields)

    def tell(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message about an attempt to all workers."""
        self._crew.send_all(kind, attempt=attempt.number, **fields)

    def fail(self, attempt: Attempt | None, cause: Cause, *, is_final: bool = False) -> None:
        """Handle an error of files, sinks or enumerators: of an attempt, or None while the next one is prepared."""
        if attempt is None:
            self._is_deploying = False
        if is_final or attempt is None or not attempt.is_over:
            self._fail(cause, is_final=is_final)

    def _fail(self, cause: Cause, *, is_final: bool = False) -> None:
        """End the attempt because of a failure; start another one unless there were too many."""
        if self._over.is_set():
            return
        number, name = self._attempts, self._config.name
        if self.state is JobState.FINISHING and not is_final:
            # All output is committed. There is nothing that a new attempt could do.
            words = "%s has ended, though attempt %d failed: %s"
            _LOG.warning(words, name, number, cause.summary, extra={"job": name, "attempt": number})
            self._end(self._goal or JobState.FINISHED)
            return
        about = {"job": name, "attempt": number}
        left = max(0, self._config.restarts - self._failures)
        _LOG.warning(FAILED, number, name, left, cause.summary, extra=about)
        self.ended_attempts.append(EndedAttempt(number, cause.code, cause.summary))
        self._close_attempt(cause.summary)
        self._failures += not cause.is_shortage
        is_lasting = is_final or cause.error().is_final or not self._checkpointing.can_restore
        if is_lasting or self._failures > self._config.restarts:
            self.failure = cause.error()
            if not is_lasting:
                self.failure.remedy += after_restarts(self._config.restarts)
            self._end(JobState.FAILED)
            return
        self.restarts += 1
        self.state = JobState.RESTARTING
        self._deploy_if_ready()

    def _close_attempt(self, reason: str) -> None:
        attempt = self._attempt
        if attempt is None or attempt.is_over:
            return
        attempt.is_over = True
        self._checkpointing.end_attempt(attempt, reason)
        attempt.cancelling = self._crew.connected
        self.tell(attempt, "CANCEL")
        self._loop.call_later(_CANCEL, lambda: self.guarded(lambda: self._drop_late(attempt)))

    def _drop_late(self, attempt: Attempt) -> None:
        if attempt is self._attempt:
            for worker in list(attempt.cancelling):
                self._crew.drop(worker)

    def _end(self, state: JobState) -> None:
        self._close_attempt("the job ends")
        self.state = state
        # Workers stop as soon as they have read what was sent to them.
        self._over.set()

    def on_complete(self, attempt: Attempt, trigger: Trigger) -> None:
        """Let the tasks end after the last checkpoint."""
        self._failures = 0
        if trigger.stop and not attempt.is_over:
            self.state = JobState.FINISHING
            self.tell(attempt, "FINISH")

    def on_stop_failed(self, attempt: Attempt) -> None:
        """Let the job go on; one that is drained ends without the savepoint."""
        self._savepoint = self._last_answer = None
        if self._goal is not JobState.FINISHED:
            self._goal = None
        attempt.last_savepoint = None
        attempt.is_last_asked = False
        if not attempt.is_over and attempt.has_ended:
            self._last_checkpoint(attempt)

    # Requests.

    def _requested(self, goal: JobState, savepoint: str | None, answer: Future[str]) -> None:
        attempt = self._attempt
        if goal is JobState.RUNNING:
            self._checkpointing.request(attempt, savepoint, stop=False, answer=answer)
            return
        self._goal, self._savepoint = goal, savepoint
        if savepoint is None:
            answer.set_result("")
        if goal is JobState.CANCELLED:
            self._end(goal)
            return
        self._last_answer = answer
        if attempt is not None and attempt.running is not None:
            self._stop(attempt, goal)

    def _stop(self, attempt: Attempt, goal: JobState) -> None:
        """Take the last checkpoint: at once, or when the sources have ended."""
        attempt.last_savepoint = self._savepoint
        if goal is JobState.FINISHED and not attempt.has_ended:
            self.tell(attempt, "DRAIN")
        else:
            self._last_checkpoint(attempt)

    def _last_checkpoint(self, attempt: Attempt) -> None:
        if not attempt.is_last_asked:
            attempt.is_last_asked = True
            answer, savepoint = self._last_answer, attempt.last_savepoint
            self._checkpointing.request(attempt, savepoint, stop=True, answer=answer)


#: Kind of a worker's message -> handles it.
_HANDLERS: Final[dict[str, Callable[[JobMaster, Attempt, int, Message], object]]] = {
    "CANCELLED": lambda *_: None,
    "DEPLOYED": JobMaster._deployed,  # noqa: SLF001 - of this file
    "METRICS": JobMaster._figures,  # noqa: SLF001
    "FAILED": JobMaster._failed,  # noqa: SLF001
    "ENDED": JobMaster._ended,  # noqa: SLF001
    "FINISHED": JobMaster._finished,  # noqa: SLF001
    "ACKNOWLEDGED": JobMaster._acknowledged,  # noqa: SLF001
    "DECLINED": JobMaster._declined,  # noqa: SLF001
    **dict.fromkeys(OF_READERS, lambda _, attempt, __, one: attempt.sources.handle(one)),
}
