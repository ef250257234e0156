"""The coordinator of a streaming job: deploys tasks, takes checkpoints, and starts anew after failures."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from headgate.control.cause import Cause
from headgate.stream.job.attempt import Attempt
from headgate.stream.job.bottleneck import Bottleneck, Shares, find_bottleneck
from headgate.stream.job.checkpointing import Checkpointing, now_ms, refuse_ended
from headgate.stream.job.checkpoints import (
    CheckpointCoordinator,
    TaskId,
    Trigger,
)
from headgate.stream.job.files import JobFiles
from headgate.stream.job.messages import StreamMessage
from headgate.stream.job.sources import JobSources
from headgate.stream.job.status import JobState, WorkerStatus
from headgate.stream.job.store import CheckpointStore, Completed, OtherDriverError
from headgate.stream.job.workers import Workers

if TYPE_CHECKING:
    from headgate.errors import HeadgateError
    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.history import CheckpointHistory
    from headgate.stream.job.pool import WorkerPool

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds between two looks at the clock, and between two looks at the workers.
_TICK: Final = 0.02
_LOOK: Final = 0.2
#: Seconds in which workers have to answer that they cancelled their tasks.
_CANCEL: Final = 40.0


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
        self.restarts = 0
        self.state = JobState.STARTING
        self.failure: HeadgateError | None = None
        self._config = config
        self._store = store
        self._pool = pool
        self._files = JobFiles(graph, config, store)
        self._checkpointing = Checkpointing(config, self._files, self)
        #: Made by the thread before anything else.
        self._workers: Workers
        self._owner = secrets.token_hex(4)
        self._attempt: Attempt | None = None
        self._attempts = 0
        self._failures = 0
        self._goal: JobState | None = None
        #: How a goal is to be reached that was set before all tasks ran.
        self._stop_savepoint: str | None = None
        self._drains = False
        #: Requests that were not answered yet.
        self._asked: list[Future[str]] = []
        self._asking = threading.Lock()
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
        self._files.claim()
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
        with self._asking:
            if self._done.is_set():
                refuse_ended(answer, self.failure)
                return answer
            self._asked = [one for one in self._asked if not one.done()]
            self._asked.append(answer)
        self.call(lambda: self._requested(goal, savepoint, drain, answer))
        return answer

    def figures(self) -> list[Mapping[str, Any]]:
        """Return the last figures of all tasks."""
        attempt = self._attempt
        if attempt is None:
            return []
        return [attempt.figures.get(task, {"task": list(task)}) for task in self.graph.tasks]

    @property
    def history(self) -> CheckpointHistory:
        """Figures of the last checkpoints."""
        return self._checkpointing.history

    def shares(self, task: TaskId) -> Shares | None:
        """Return what a task did in the last seconds."""
        attempt = self._attempt
        return None if attempt is None else attempt.shares.get(task)

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that are connected."""
        return self._workers.status() if self._attempts else []

    def bottleneck(self) -> Bottleneck | None:
        """Return the stage that others wait for, by the last seconds."""
        attempt = self._attempt
        return None if attempt is None else find_bottleneck(self.graph, dict(attempt.shares))

    @property
    def attempt(self) -> int:
        """Number of the current attempt, from 1; 0 before the first."""
        return self._attempts

    def call(self, action: Callable[[], None]) -> None:
        """Have an action done on the coordinator's thread, if it still runs; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._guarded, action)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - fails the job
            self.fail(Cause.of(error), is_final=True)

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
            self._files.close()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            with self._asking:
                self._done.set()
                for answer in self._asked:
                    refuse_ended(answer, self.failure)

    async def _main(self) -> None:
        self._workers = workers = await Workers.open(
            self._pool, self, self._over, self._guarded, self._config.heartbeat_timeout
        )
        try:
            workers.start()
            looked = 0.0
            while not self._over.is_set():
                self._guarded(self._tick)
                now = self._loop.time()
                if now - looked >= _LOOK:
                    looked = now
                    self._guarded(workers.look)
                try:
                    await asyncio.wait_for(self._over.wait(), _TICK)
                except TimeoutError:
                    continue
        finally:
            await workers.close(_CANCEL)

    def _tick(self) -> None:
        attempt = self._attempt
        if attempt is not None and not attempt.is_over:
            self._checkpointing.look(attempt)

    # Workers.

    def worker_joined(self) -> None:
        """Start the tasks, if all workers are there and none run."""
        self._deploy_if_ready()

    def worker_lost(self, number: int, cause: Cause) -> None:
        """End the attempt of a worker whose connection has ended."""
        attempt = self._attempt
        if attempt is not None:
            attempt.cancelling.discard(number)
            if not attempt.is_over:
                self.fail(cause)

    def worker_failed(self, cause: Cause) -> None:
        """Count the end of a worker as a failure."""
        self.fail(cause)

    def worker_said(self, number: int, message: StreamMessage) -> None:
        """Handle a message about an attempt."""
        attempt = self._attempt
        if attempt is None or message["attempt"] != attempt.number:
            return
        if message.kind == "CANCELLED":
            attempt.cancelling.discard(number)
            self._deploy_if_ready()
        elif not attempt.is_over:
            handler = handlers.get(message.kind)
            if handler is None:
                attempt.sources.handle(message)
            else:
                handler(self, attempt, number, message)

    def _deployed(self, attempt: Attempt, number: int, message: StreamMessage) -> None:
        attempt.deployed[number] = message
        if len(attempt.deployed) == self._pool.size:
            self._connect(attempt)

    def _noted(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        for one in message["tasks"]:
            attempt.note(tuple(one["task"]), one)

    def _task_failed(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        self.fail(Cause.from_fields(message["cause"]))

    def _task_ended(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        attempt.ended.add(tuple(message["task"]))
        if len(attempt.ended) == len(attempt.placed):
            self._checkpointing.last(attempt, attempt.last_savepoint)

    def _task_finished(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        attempt.finished.add(tuple(message["task"]))
        if len(attempt.finished) == len(attempt.placed):
            self._end(self._goal or JobState.FINISHED)

    def _acknowledged(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        self._checkpointing.acknowledged(attempt, message)

    def _declined(self, attempt: Attempt, number: int, message: StreamMessage) -> None:  # noqa: ARG002 - as others
        self._checkpointing.declined(attempt, message["checkpoint"], message["reason"])

    # Attempts.

    def _deploy_if_ready(self) -> None:
        attempt = self._attempt
        is_free = attempt is None or (attempt.is_over and not attempt.cancelling)
        if not is_free or self._deploying or not self._workers.are_complete:
            return
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        self._deploying = True
        delay = 0.0 if attempt is None else self._config.restart_delay
        self._loop.call_later(delay, lambda: self._guarded(self._restore))

    def _restore(self) -> None:
        """Read what to continue from, and commit what it has, on the thread of files."""
        self.in_files(self._files.restore, self._deploy)

    def _deploy(self, restored: Completed | None) -> None:
        self._deploying = False
        if self.state not in {JobState.STARTING, JobState.RESTARTING}:
            return
        if self._attempt is not None and not self._attempt.is_over:
            return  # A failure while this one was prepared has led to another one.
        if not self._workers.are_complete:
            return  # Lost meanwhile: its HELLO deploys.
        self._attempts += 1
        number = self._attempts
        placed = {task: at % self._pool.size for at, task in enumerate(self.graph.tasks)}
        sources = JobSources(
            self.graph,
            None if restored is None else restored.fields,
            lambda kind, task, fields: self.call(
                lambda: self._to_task(attempt, kind, task, fields)
            ),
            lambda error: self.call(lambda: self._fail_attempt(attempt, Cause.of(error))),
        )
        attempt = Attempt(number, f"{self._owner}-{number}", restored, placed, sources)
        self._attempt = attempt
        tasks = attempt.deployments(self.graph, self._store, self._config.retained)
        checkpoint = None if restored is None else restored.checkpoint
        for worker in self._workers.connected:
            own = tasks.get(worker, [])
            self._workers.send(worker, "DEPLOY", attempt=number, restored=checkpoint, tasks=own)

    def _connect(self, attempt: Attempt) -> None:
        """Tell each task where its channels are, and start the enumerators."""
        inputs = attempt.inputs(self.graph)
        for worker in self._workers.connected:
            own = inputs.get(worker, [])
            self._workers.send(worker, "CONNECT", attempt=attempt.number, inputs=own)
        attempt.sources.start(lambda task: self._workers.host_of(attempt.placed[task]))
        first = 1 + max(self._files.completed, self._checkpointing.last_id)
        attempt.checkpoints = CheckpointCoordinator(
            self._config.checkpoints, attempt.placed, first, now_ms()
        )
        self.state = JobState.RUNNING
        if self._goal is not None:
            self._stop(attempt, self._stop_savepoint, drain=self._drains)

    def _to_task(self, attempt: Attempt, kind: str, task: TaskId, fields: dict[str, Any]) -> None:
        if attempt is self._attempt and not attempt.is_over:
            worker = attempt.placed[task]
            self._workers.send(worker, kind, attempt=attempt.number, task=list(task), **fields)

    def to_all(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message to all workers."""
        self._workers.send_all(kind, attempt=attempt.number, **fields)

    def _fail_attempt(self, attempt: Attempt, cause: Cause) -> None:
        if attempt is self._attempt and not attempt.is_over:
            self.fail(cause)

    def fail(self, cause: Cause, *, is_final: bool = False) -> None:
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

    def _close_attempt(self, attempt: Attempt | None, reason: str) -> None:
        if attempt is None or attempt.is_over:
            return
        attempt.is_over = True
        self._checkpointing.close(attempt, reason)
        self._files.submit(attempt.sources.close)
        attempt.cancelling = self._workers.connected
        self.to_all(attempt, "CANCEL")
        number = attempt.number
        self._loop.call_later(_CANCEL, lambda: self._guarded(lambda: self._drop_late(number)))

    def _drop_late(self, number: int) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.number == number:
            for worker in tuple(attempt.cancelling):
                self._workers.drop(worker)

    def _end(self, state: JobState) -> None:
        self._close_attempt(self._attempt, "the job ends")
        self.state = state
        # Workers stop as soon as they have read what was sent to them.
        self._over.set()

    def checkpoint_completed(self, trigger: Trigger) -> None:
        """Count failures anew; the tasks end behind the last checkpoint."""
        self._failures = 0
        attempt = self._attempt
        if trigger.stop and attempt is not None and not attempt.is_over:
            self.state = JobState.FINISHING

    # Requests.

    def _requested(
        self, goal: JobState, savepoint: str | None, drain: bool, answer: Future[str]
    ) -> None:
        if savepoint is not None:
            self._checkpointing.expect(savepoint, answer)
        else:
            answer.set_result("")
        attempt = self._attempt
        if goal is JobState.CANCELLED:
            self._goal = goal
            self._end(goal)
        elif goal is JobState.RUNNING:
            if savepoint is not None:
                self._checkpointing.savepoint(attempt, savepoint)
        else:
            self._goal, self._stop_savepoint, self._drains = goal, savepoint, drain
            if attempt is not None and not attempt.is_over and attempt.checkpoints is not None:
                self._stop(attempt, savepoint, drain=drain)

    def _stop(self, attempt: Attempt, savepoint: str | None, *, drain: bool) -> None:
        if drain:
            attempt.last_savepoint = savepoint
            self.to_all(attempt, "DRAIN")
            if len(attempt.ended) == len(attempt.placed):
                self._checkpointing.last(attempt, savepoint)
        else:
            self._checkpointing.last(attempt, savepoint)

    def in_files(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run work on the thread of files, then an action on this thread; an error fails the job."""
        attempt = self._attempt

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - fails the attempt
                cause = Cause.of(error)
                is_final = isinstance(error, OtherDriverError)
                self.call(lambda: self._files_failed(attempt, cause, is_final=is_final))
            else:
                self.call(lambda: then(result))

        self._files.submit(run)

    def _files_failed(self, attempt: Attempt | None, cause: Cause, *, is_final: bool) -> None:
        if attempt is self._attempt:
            self.fail(cause, is_final=is_final)


Handler = Callable[[JobMaster, Attempt, int, StreamMessage], None]
#: What the coordinator does with a message about its attempt; the others are for its sources.
handlers: Final[dict[str, Handler]] = {
    "DEPLOYED": JobMaster._deployed,  # noqa: SLF001 - of this file
    "METRICS": JobMaster._noted,  # noqa: SLF001
    "FAILED": JobMaster._task_failed,  # noqa: SLF001
    "ENDED": JobMaster._task_ended,  # noqa: SLF001
    "FINISHED": JobMaster._task_finished,  # noqa: SLF001
    "ACKNOWLEDGED": JobMaster._acknowledged,  # noqa: SLF001
    "DECLINED": JobMaster._declined,  # noqa: SLF001
}
