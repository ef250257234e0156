"""The coordinator of a streaming job: deploys tasks, has checkpoints taken, and starts anew after failures. Decision: ADR 0061."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import Cause
from headgate.errors import CheckpointError, HeadgateError, PeerLostError, ProtocolError
from headgate.observe.record import Failure
from headgate.stream.graph.placement import placed
from headgate.stream.job.attempt import Attempt
from headgate.stream.job.checkpointing import Checkpointing
from headgate.stream.job.lock_waits import LockWaits
from headgate.stream.job.notices import FAILED, Notices, remedy_after_restarts
from headgate.stream.job.rates import JobRates
from headgate.stream.job.reports import READER_MESSAGES, check_report
from headgate.stream.job.restoring import restored_tasks
from headgate.stream.job.sources import JobSources
from headgate.stream.job.status import JobState
from headgate.stream.job.stop import Stop
from headgate.stream.job.worker_registry import WorkerRegistry

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.observe.record import CheckpointStats, Worker
    from headgate.stream.graph.stages import JobGraph, TaskId
    from headgate.stream.job.checkpoints import Trigger
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.pool import WorkerPool
    from headgate.stream.job.store import CheckpointStore, Completed

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds between two looks at the workers: while one is missing, and while all are there.
_LOOK_FOR: Final = 0.2
_LOOK_AT: Final = 2.5
#: Looks within the time after which a silent worker is lost.
_LOOKS: Final = 4
#: Seconds in which workers have to answer that they cancelled their tasks.
_CANCEL: Final = 40.0
#: Seconds for which a task's report that a peer is gone waits for the end of that peer's own connection.
_NEWS: Final = 0.3
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
        name: of the job.
        started_at, ended_at: in seconds since 1970.
        restarts: failures after which it was started anew.
        state, failure: what it does, and why it failed.
        attempt: the newest one, whose figures any thread may read.
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
        self.name = config.name
        self.started_at = round(time.time(), 3)
        self.ended_at: float | None = None
        self.restarts = 0
        self.state = JobState.STARTING
        self.failure: HeadgateError | None = None
        self.attempt: Attempt | None = None
        self.ended_attempts: deque[Failure] = deque(maxlen=16)
        self.notices = Notices(config.name)
        #: Called by the job's thread once nothing changes any more.
        self.when_over: Callable[[], object] = lambda: None
        self._lock_waits = LockWaits(self.notices)
        self._config = config
        self._pool = pool
        # They end with this object, not with a garbage collection: a job may hold much, such as its functions.
        proxy: JobMaster = weakref.proxy(self)
        self._workers = WorkerRegistry(pool, config.heartbeat_timeout, proxy)
        self._stop = Stop()
        self._loop = asyncio.new_event_loop()
        self._checkpointing = Checkpointing(graph, config, store, self._stop, self._loop, proxy)
        self._rates = JobRates(graph, self._loop, proxy)
        self._attempts = 0
        #: Failures since the last complete checkpoint.
        self._failures = 0
        #: True from the wish for an attempt until it is deployed or its restore has failed: one at a time.
        self._is_deploying = False
        #: Answers that somebody waits for.
        self._unanswered: set[Future[str]] = set()
        self._done = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-stream", daemon=True)

    # From any thread.

    def start(self) -> None:
        """Claim the checkpoints and start the job.

        Raises:
            CheckpointError: the checkpoints cannot be used.
        """
        try:
            self._rates.claim()
            self._checkpointing.completed.claim()
        except BaseException:
            self._rates.close()
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
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
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
        return list(self._checkpointing.history)

    def workers(self) -> list[Worker]:
        """Return the workers that are connected."""
        return self._workers.status()

    def peaks(self) -> dict[int, int]:
        """Return the peak resident memory of each worker's process, in bytes."""
        return self._workers.peaks()

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
            self.fail(cause := Cause.of(error), is_final=not cause.is_shortage)

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
            self._rates.close()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # Its thread calls this loop, which drops the calls once it is closed.
            self._loop.close()
            self._checkpointing.close()
            self.ended_at = time.time()
            self._done.set()
            for answer in tuple(self._unanswered):
                self._answer_ended(answer)
            self.when_over()

    async def _main(self) -> None:
        try:
            await self._workers.open()
            self._look()
            await self._over.wait()
        finally:
            await self._workers.close()

    def _look(self) -> None:
        """Look at the workers, now and from time to time until the job is over."""
        if not self._over.is_set():
            self.guarded(self._workers.look)
            often = _LOOK_AT if self._workers.is_complete else _LOOK_FOR
            self._loop.call_later(min(often, self._config.heartbeat_timeout / _LOOKS), self._look)

    # Of the workers.

    @property
    def is_over(self) -> bool:
        """True once the job ends."""
        return self._over.is_set()

    def on_lost(self, worker: int, cause: Cause) -> None:
        """End the attempt of a lost worker."""
        attempt = self.attempt
        if attempt is not None:
            attempt.cancelling.discard(worker)
        self.fail(cause, attempt)
        self.deploy_if_ready()

    def on_notice(self, notice: str) -> None:
        """Show a sentence about a worker."""
        self.notices.add(notice, logging.WARNING)

    def on_message(self, worker: int, message: Message) -> None:
        """Handle a worker's message about the current attempt.

        Raises:
            ProtocolError: it cannot be true.
        """
        attempt = self.attempt
        handle = _HANDLERS.get(message.kind)
        if handle is None:
            raise ProtocolError(f"worker {worker} has sent {message.kind}, which is no report")
        if attempt is None or message["attempt"] != attempt.number:
            return
        if message.kind == "CANCELLED":
            attempt.cancelling.discard(worker)
            self.deploy_if_ready()
        elif not attempt.is_over:
            check_report(self.graph, attempt, worker, message, self.state)
            handle(self, attempt, worker, message)

    def _deployed(self, attempt: Attempt, worker: int, message: Message) -> None:
        attempt.deployed[worker] = message
        if len(attempt.deployed) == self._workers.size:
            self._connect(attempt)

    def _figures(self, attempt: Attempt, worker: int, message: Message) -> None:
        for figures in message["tasks"]:
            attempt.note(tuple(figures["task"]), figures)
            self.notices.note(figures.get("dropped", {}))
            self.notices.note_pauses(figures.get("metrics", {}))
            self.notices.note_loads(figures.get("metrics", {}))
            self.notices.note_watermark(figures["watermark"])
        self._lock_waits.note(attempt, worker, message)

    def _failed(self, attempt: Attempt, _: int, message: Message) -> None:
        cause = Cause.from_fields(message["cause"])
        if cause.code != PeerLostError.code:
            self.fail(cause)
            return
        # The coordinator may be about to learn that the peer is lost, and knows more of it.
        self._loop.call_later(_NEWS, lambda: self.guarded(lambda: self.fail(cause, attempt)))

    def _ended(self, attempt: Attempt, _: int, message: Message) -> None:
        attempt.ended.add(tuple(message["task"]))
        if attempt.has_ended:
            self._last_checkpoint(attempt)

    def _finished(self, attempt: Attempt, _: int, message: Message) -> None:
        attempt.finished.add(tuple(message["task"]))
        if attempt.has_finished:
            self._end(self._stop.end)

    def _acknowledged(self, attempt: Attempt, _: int, message: Message) -> None:
        task = tuple(message["task"])
        self._checkpointing.acknowledged(attempt, task, message["checkpoint"], message["state"])

    def _declined(self, attempt: Attempt, _: int, message: Message) -> None:
        self._checkpointing.declined(attempt, message["checkpoint"], message["reason"])

    # Attempts.

    def deploy_if_ready(self) -> None:
        """Deploy the tasks once all workers are there, and no attempt runs."""
        attempt = self.attempt
        is_free = attempt is None or (attempt.is_over and not attempt.cancelling)
        is_wanted = self.state in {JobState.STARTING, JobState.RESTARTING}
        if not is_free or not is_wanted or self._is_deploying or not self._workers.is_complete:
            return
        self._is_deploying = True
        delay = 0.0 if attempt is None else self._config.restart_delay
        number = self._attempts + 1
        self._loop.call_later(delay, lambda: self.guarded(lambda: self._restore(number)))

    def _restore(self, attempt: int) -> None:
        def failed(cause: Cause, is_final: bool) -> None:
            self._is_deploying = False
            self.fail(cause, is_final=is_final)

        self._checkpointing.restore(attempt, self._deploy, failed)

    def _deploy(self, restored: Completed | None) -> None:
        """Have all workers make their tasks."""
        self._is_deploying = False
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        if self._checkpointing.is_final(restored):
            self._end(self._stop.end)
            return
        if not self._workers.is_complete:
            return  # Lost meanwhile: its HELLO deploys.
        self._attempts += 1
        name = self._checkpointing.completed.name(self._attempts)
        size = self._workers.size
        worker_of = placed(self.graph, size)
        fields, base = (None, "") if restored is None else (restored.fields, restored.base)
        sources = JobSources(
            self.graph,
            fields,
            lambda kind, task, more: self.call(lambda: self.to_task(attempt, kind, task, more)),
            lambda error: self.call(lambda: self.fail(Cause.of(error), attempt)),
        )
        attempt = self.attempt = Attempt(self._attempts, name, restored, worker_of, sources)
        self._rates.begin(attempt)
        tasks: dict[int, list[Any]] = {worker: [] for worker in range(size)}
        for stage in self.graph.stages:
            for at, task in enumerate(restored_tasks(self.graph, stage, fields, base)):
                task |= {
                    "task": [stage.number, at],
                    "attempt": name,
                    "retained": self._config.retained,
                    "allow_dropped_state": self._config.allow_dropped_state,
                    **self._checkpointing.completed.folders(name, stage.number, at),
                }
                tasks[worker_of[stage.number, at]].append(task)
        checkpoint = None if restored is None else restored.for_sinks
        about = {"alignment": self._config.alignment, "restored": checkpoint}
        for worker, deployed in tasks.items():
            self._workers.send(worker, "DEPLOY", attempt=attempt.number, tasks=deployed, **about)

    def _connect(self, attempt: Attempt) -> None:
        """Tell each task where its channels are, and start the enumerators."""
        for worker, inputs in attempt.inputs(self.graph).items():
            self._workers.send(worker, "CONNECT", attempt=attempt.number, inputs=inputs)
        attempt.sources.start(lambda task: self._workers.host(attempt.worker_of[task]))
        self._checkpointing.begin(attempt)
        self.state = JobState.RUNNING
        if self._stop.goal is not None:
            self._begin_stop(attempt)

    def to_task(self, attempt: Attempt, kind: str, task: TaskId, fields: dict[str, Any]) -> None:
        """Send a message to a task of an attempt, while that runs; on the coordinator's thread."""
        if attempt is self.attempt and not attempt.is_over:
            worker = attempt.worker_of[task]
            self._workers.send(worker, kind, attempt=attempt.number, task=list(task), **fields)

    def tell(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message about an attempt to all workers."""
        self._workers.send_all(kind, attempt=attempt.number, **fields)

    def fail(self, cause: Cause, attempt: Attempt | None = None, *, is_final: bool = False) -> None:
        """End the attempt because of a failure; start another one unless there were too many.

        Args:
            cause: of the failure.
            attempt: that failed. If it is over, only a final failure counts. None for whatever runs.
            is_final: True if each attempt would fail so.
        """
        if self._over.is_set() or (attempt is not None and attempt.is_over and not is_final):
            return
        number, name = self._attempts, self._config.name
        if self.state is JobState.FINISHING and not is_final:
            # All output is committed. There is nothing that a new attempt could do.
            text = "%s has ended, though attempt %d failed: %s"
            _LOG.warning(text, name, number, cause.summary, extra={"job": name, "attempt": number})
            self._end(self._stop.end)
            return
        about = {"job": name, "attempt": number}
        left = max(0, self._config.restarts - self._failures)
        _LOG.warning(FAILED, number, name, left, cause.summary, extra=about)
        self.ended_attempts.append(Failure(number, cause.code, cause.summary))
        self._close_attempt(cause.summary)
        self._failures += not cause.is_shortage
        is_lasting = (
            is_final or cause.error().is_final or not self._checkpointing.completed.can_restore
        )
        if is_lasting or self._failures > self._config.restarts:
            self.failure = cause.error()
            if not is_lasting:
                self.failure.remedy += remedy_after_restarts(self._config.restarts)
            self._end(JobState.FAILED)
            return
        self.restarts += 1
        self.state = JobState.RESTARTING
        self.deploy_if_ready()

    def _close_attempt(self, reason: str) -> None:
        attempt = self.attempt
        if attempt is None or attempt.is_over:
            return
        attempt.is_over = True
        self._rates.end_attempt()
        self._checkpointing.end_attempt(attempt, reason)
        attempt.cancelling = self._workers.connected
        self.tell(attempt, "CANCEL")
        self._loop.call_later(_CANCEL, lambda: self.guarded(lambda: self._drop_late(attempt)))

    def _drop_late(self, attempt: Attempt) -> None:
        if attempt is self.attempt:
            for worker in list(attempt.cancelling):
                self._workers.drop(worker)

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
        """Let the job go on, or end it without its savepoint."""
        self._stop.give_up()
        if not attempt.is_over and attempt.has_ended:
            self._last_checkpoint(attempt)

    # Requests.

    def _requested(self, goal: JobState, savepoint: str | None, answer: Future[str]) -> None:
        attempt, stop = self.attempt, self._stop
        if goal is JobState.RUNNING:
            self._checkpointing.request(attempt, savepoint, stop=False, answer=answer)
            return
        stop.goal, stop.savepoint = goal, savepoint
        if savepoint is None:
            answer.set_result("")
        if goal is JobState.CANCELLED:
            self._end(goal)
            return
        stop.answer = answer
        if attempt is not None and attempt.running is not None:
            self._begin_stop(attempt)

    def _begin_stop(self, attempt: Attempt) -> None:
        """Take the last checkpoint: at once, or when the sources have ended."""
        if self._stop.goal is JobState.FINISHED and not attempt.has_ended:
            self.tell(attempt, "DRAIN")
        else:
            self._last_checkpoint(attempt)

    def _last_checkpoint(self, attempt: Attempt) -> None:
        stop = self._stop
        if stop.attempt != attempt.number:
            stop.attempt = attempt.number
            self._checkpointing.request(attempt, stop.savepoint, stop=True, answer=stop.answer)


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
    "TOKENS_WANTED": lambda self, attempt, _, message: self._rates.report(attempt, message),
    **dict.fromkeys(
        READER_MESSAGES, lambda _, attempt, __, message: attempt.sources.handle(message)
    ),
}
