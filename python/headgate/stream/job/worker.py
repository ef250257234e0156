"""A worker of a streaming job: runs its tasks in threads, and talks to the coordinator."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.checkpoints import CheckpointBarrier
from headgate.control.beside import DriverHeartbeats
from headgate.control.cause import Cause
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Message
from headgate.errors import CoordinatorError, InternalError, ProtocolError
from headgate.source.api.event import SourceEvent
from headgate.stream.job.deployment import Deployment
from headgate.stream.job.messages import CODEC, data, text

if TYPE_CHECKING:
    from headgate.control.place import Place
    from headgate.stream.api.graph import JobGraph
    from headgate.stream.runtime.task import StreamTask, TaskSnapshot

_LOG: Final = logging.getLogger("headgate.stream")
#: Addresses to listen on that are none to connect to.
_ALL_ADDRESSES: Final = {"0.0.0.0", "::"}  # noqa: S104 - compared only
#: Seconds between two looks at the coordinator's heartbeats while there is nothing to read.
_LOOK: Final = 0.5
#: Seconds between two reports of figures.
_REPORT: Final = 1.0
#: Seconds in which cancelled tasks have to end.
_CANCEL: Final = 30.0
#: Threads that write snapshots.
_WRITERS: Final = 2


class StreamWorker:
    """Runs tasks as the coordinator says, until it says stop or cannot be reached.

    Args:
        graph: the job.
        name: of the job.
        number: of this worker, from 0.
        place: of the coordinator.
        options: of the environments. By default they listen on the address from which this worker reaches the coordinator.
    """

    def __init__(
        self,
        graph: JobGraph,
        name: str,
        number: int,
        place: Place,
        options: Mapping[str, Any],
    ) -> None:
        self._graph = graph
        self._name = name
        self._number = number
        self._place = place
        self._options = options
        self._connection: WorkerConnection | None = None
        self._sending = threading.Lock()
        self._reporting = threading.Lock()
        self._deployment: Deployment | None = None
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="headgate-snapshots")
        self._ended = threading.Event()
        self._is_stopped = False

    def run(self) -> None:
        """Run until the coordinator stops this worker.

        Raises:
            CoordinatorError: it cannot be reached any more.
        """
        connection = self._connection = WorkerConnection(
            self._place, CODEC, is_wanted=lambda: not self._is_stopped
        )
        reporter = threading.Thread(target=self._report, name="headgate-reports", daemon=True)
        heartbeats: DriverHeartbeats | None = None
        try:
            host = socket.gethostname()
            self._send("HELLO", worker=self._number, host=host, pid=os.getpid())
            heartbeats = DriverHeartbeats(self._place, CODEC, connection)
            reporter.start()
            while True:
                if not connection.is_readable(_LOOK):
                    heartbeats.check()
                    continue
                for message in connection.receive():
                    if message.kind == "STOP":
                        return
                    try:
                        self._handle(message)
                    except CoordinatorError:
                        raise
                    except Exception as error:  # noqa: BLE001 - reported to the coordinator
                        self._failed(message["attempt"], error)
        finally:
            self._ended.set()
            self._cancel()
            self._writers.shutdown()
            connection.sock.close()
            if heartbeats is not None:
                heartbeats.close()
            if reporter.ident is not None:
                reporter.join()

    def stop(self) -> None:
        """Dial a coordinator that has ended no more; from any thread. A worker that is connected ends by its message."""
        self._is_stopped = True

    def kill(self) -> None:
        """End as a lost process would: without a word. For tests."""
        if self._connection is not None:
            self._connection.shut_down()

    def _send(self, kind: str, **fields: Any) -> None:
        connection = self._connection
        if connection is None:
            return
        with self._sending:
            connection.send(Message(kind, fields))

    def _tell(self, kind: str, **fields: Any) -> None:
        """Send from a task's thread, which has nobody to raise to: a lost coordinator ends the worker anyway."""
        with suppress(CoordinatorError):
            self._send(kind, **fields)

    def _handle(self, message: Message) -> None:
        if message.kind == "DEPLOY":
            self._deploy(message)
        elif message.kind == "CANCEL":
            self._cancel()
            self._send("CANCELLED", attempt=message["attempt"])
        else:
            deployment = self._deployment
            if deployment is not None and deployment.attempt == message["attempt"]:
                handlers[message.kind](self, deployment, message)

    def _deploy(self, message: Message) -> None:
        self._cancel()
        attempt = message["attempt"]
        own = self._own_address()
        options = {"listen": f"{own}:0", **self._options}
        deployment = Deployment(
            self._graph, self._name, attempt, self._place, options, message, self
        )
        self._deployment = deployment
        host, port = deployment.environment.address
        self._send(
            "DEPLOYED",
            attempt=attempt,
            partitions=deployment.partitions(),
            host=own if host in _ALL_ADDRESSES else host,
            port=port,
            process=deployment.environment.process_id.hex(),
        )

    def _own_address(self) -> str:
        if self._connection is None:
            raise InternalError("the worker has no connection")
        return str(self._connection.sock.getsockname()[0])

    def _cancel(self) -> None:
        deployment, self._deployment = self._deployment, None
        if deployment is not None:
            late = deployment.cancel(_CANCEL)
            if late:
                _LOG.warning(
                    "still running %g s after they were cancelled: %s", _CANCEL, ", ".join(late)
                )

    # Messages of the coordinator.

    def _connect(self, deployment: Deployment, message: Message) -> None:
        deployment.connect(message["inputs"])

    def _failed(self, attempt: int, error: Exception) -> None:
        cause = Cause.of(error, where=f"worker {self._number}").fields()
        self._send("FAILED", attempt=attempt, cause=cause)

    def _trigger(self, deployment: Deployment, message: Message) -> None:
        barrier = CheckpointBarrier(
            message["checkpoint"],
            message["timestamp"],
            message["alignment"],
            message["timeout"],
            (message["savepoint"] or "").encode(),
        )
        for task in deployment.tasks_of(message["stage"]):
            task.trigger_checkpoint(barrier, stop=message["stop"])

    def _complete(self, deployment: Deployment, message: Message) -> None:
        checkpoint = message["checkpoint"]
        if message["savepoint"]:
            return
        for task in deployment.tasks.values():
            task.complete_checkpoint(checkpoint)

    def _abort(self, deployment: Deployment, message: Message) -> None:
        for key, task in deployment.tasks.items():
            task.abort_checkpoint(message["checkpoint"], message["reason"])
            self._in_writer(deployment.discard, key, message["checkpoint"])

    def _assign(self, deployment: Deployment, message: Message) -> None:
        splits = [(split_id, data(body)) for split_id, body in message["splits"]]
        version = message["version"]
        self._source(deployment, message).for_source(lambda one: one.add_splits(version, splits))

    def _no_more_splits(self, deployment: Deployment, message: Message) -> None:
        self._source(deployment, message).for_source(lambda one: one.no_more_splits())

    def _event(self, deployment: Deployment, message: Message) -> None:
        event = SourceEvent(message["name"], data(message["payload"]))
        self._source(deployment, message).for_source(lambda one: one.source_event(event))

    def _align(self, deployment: Deployment, message: Message) -> None:
        limit = message["ms"]
        self._source(deployment, message).for_source(lambda one: one.align(limit))

    def _drain(self, deployment: Deployment, message: Message) -> None:  # noqa: ARG002 - as others
        for stage in self._graph.stages:
            if stage.head.source is not None:
                for task in deployment.tasks_of(stage.number):
                    task.for_source(lambda one: one.stop(drain=True))

    def _finish(self, deployment: Deployment, message: Message) -> None:  # noqa: ARG002 - as others
        for task in deployment.tasks.values():
            task.finish()

    @staticmethod
    def _source(deployment: Deployment, message: Message) -> StreamTask:
        task = deployment.tasks.get(tuple(message["task"]))
        if task is None:
            raise ProtocolError(
                f"the coordinator speaks of task {message['task']}, which is elsewhere"
            )
        return task

    # What tasks tell, on their threads.

    def on_snapshot(self, task: StreamTask, snapshot: TaskSnapshot) -> None:
        """Write a snapshot in another thread, then acknowledge the checkpoint."""
        deployment = self._deployment
        if deployment is not None and deployment.has(task):
            deployment.being_written.append(snapshot)
            self._in_writer(self._acknowledge_or_decline, deployment, task, snapshot)

    def on_complete(self, task: StreamTask, checkpoint: int) -> None:
        """Delete what a complete checkpoint replaces: later snapshots of the task build on this one."""
        deployment = self._deployment
        if deployment is not None and deployment.has(task):
            key = deployment.key_of(task)
            self._in_writer(deployment.delete_old, key, checkpoint)

    def _in_writer(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call in another thread; an error there is logged."""

        def run() -> None:
            try:
                call(*arguments)
            except Exception:  # noqa: BLE001 - logged; there is nobody to raise to
                _LOG.warning("%s failed", call.__name__, exc_info=True)

        self._writers.submit(run)

    def _acknowledge_or_decline(
        self, deployment: Deployment, task: StreamTask, snapshot: TaskSnapshot
    ) -> None:
        try:
            self._acknowledge(deployment, task, snapshot)
        except Exception as error:  # noqa: BLE001 - declined
            self._tell(
                "DECLINED",
                attempt=deployment.attempt,
                task=list(deployment.key_of(task)),
                checkpoint=snapshot.checkpoint,
                reason=f"the snapshot of {task.name} cannot be written: {error}",
            )
        finally:
            deployment.being_written.remove(snapshot)

    def _acknowledge(
        self, deployment: Deployment, task: StreamTask, snapshot: TaskSnapshot
    ) -> None:
        started = time.monotonic()
        key = deployment.key_of(task)
        written = 0
        operators: dict[str, Any] = {}
        for uid, part in snapshot.operators.items():
            found: dict[str, Any] = {}
            if part.committables:
                found["committables"] = [[tag, text(one)] for tag, one in part.committables]
            if part.watermark is not None and deployment.is_exactly_once:
                found["watermark"] = part.watermark
            if part.state is not None:
                folder = deployment.folder(key, uid, snapshot)
                if folder is not None:
                    manifest = part.state.write(folder)
                    number = f"{snapshot.checkpoint:010d}-"
                    files = (f for state in manifest.states for f in state.files)
                    written += sum(f.size for f in files if f.name.startswith(number))
                    found["state"] = [folder.uri, snapshot.checkpoint]
                else:
                    part.state.cancel()
            operators[uid] = found
        channels = None
        if snapshot.channels.size:
            folder = deployment.channel_folder(key)
            channels = snapshot.channels.write(folder, snapshot.checkpoint)
        state: dict[str, Any] = {
            "operators": operators,
            "channels": channels,
            "in_flight": snapshot.channels.size,
            "bytes": written + snapshot.channels.size,
            "sync": snapshot.sync_ms,
            "start_delay": snapshot.start_delay,
            "async": int((time.monotonic() - started) * 1000),
            "alignment": task.metrics.alignment_ms,
        }
        if snapshot.splits is not None:
            version, splits = snapshot.splits
            state["splits"] = [version, [[split_id, text(body)] for split_id, body in splits]]
        self._tell(
            "ACKNOWLEDGED",
            attempt=deployment.attempt,
            task=list(key),
            checkpoint=snapshot.checkpoint,
            state=state,
        )

    def on_declined(self, task: StreamTask, checkpoint: int, reason: str) -> None:
        """Tell the coordinator."""
        self._of_task(task, "DECLINED", checkpoint=checkpoint, reason=reason)

    def on_end(self, task: StreamTask) -> None:
        """Tell the coordinator, with the last figures."""
        self._tell_figures()
        self._of_task(task, "ENDED")

    def on_finished(self, task: StreamTask, error: BaseException | None) -> None:
        """Tell the coordinator how the task ended, with the last figures: rows come until a stop too."""
        if error is None:
            self._tell_figures()
            self._of_task(task, "FINISHED")
            return
        cause = Cause.of(error, where=f"task {task.name}")
        deployment = self._deployment
        if deployment is not None and deployment.has(task):
            self._tell("FAILED", attempt=deployment.attempt, cause=cause.fields())

    def _of_task(self, task: StreamTask, kind: str, **fields: Any) -> None:
        deployment = self._deployment
        if deployment is not None and deployment.has(task):
            key = list(deployment.key_of(task))
            self._tell(kind, attempt=deployment.attempt, task=key, **fields)

    def tell_of_source(self, attempt: int, kind: str, task: tuple[int, int], **fields: Any) -> None:
        """Send a message of a source's reader."""
        self._tell(kind, attempt=attempt, task=list(task), **fields)

    def _report(self) -> None:
        while not self._ended.wait(_REPORT):
            self._tell_figures()

    def _tell_figures(self) -> None:
        """Send the figures of all tasks, in the order in which they were taken."""
        with self._reporting:
            deployment = self._deployment
            if deployment is not None:
                self._tell("METRICS", attempt=deployment.attempt, tasks=deployment.figures())


Handler = Callable[[StreamWorker, Deployment, Message], None]
handlers: Final[dict[str, Handler]] = {
    "CONNECT": StreamWorker._connect,  # noqa: SLF001 - of this file
    "TRIGGER": StreamWorker._trigger,  # noqa: SLF001
    "COMPLETE": StreamWorker._complete,  # noqa: SLF001
    "ABORT": StreamWorker._abort,  # noqa: SLF001
    "ASSIGN": StreamWorker._assign,  # noqa: SLF001
    "NO_MORE_SPLITS": StreamWorker._no_more_splits,  # noqa: SLF001
    "EVENT": StreamWorker._event,  # noqa: SLF001
    "ALIGN": StreamWorker._align,  # noqa: SLF001
    "DRAIN": StreamWorker._drain,  # noqa: SLF001
    "FINISH": StreamWorker._finish,  # noqa: SLF001
}
