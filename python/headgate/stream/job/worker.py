"""A worker of a streaming job: runs its tasks in threads, and talks to the coordinator."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from headgate._process import memory_group
from headgate.checkpoints import CheckpointBarrier
from headgate.control.cause import Cause
from headgate.control.connection import WorkerConnection
from headgate.control.driver_heartbeats import DriverHeartbeats
from headgate.control.messages import Message
from headgate.errors import CoordinatorError, InternalError, ProtocolError
from headgate.source.api.event import SourceEvent
from headgate.stream.job.deployment import Deployment
from headgate.stream.job.lock_waits import lock_wait_us
from headgate.stream.job.messages import CODEC, from_base64
from headgate.stream.job.shared import SharedObjects
from headgate.stream.runtime.task import COMMIT_ONLY

if TYPE_CHECKING:
    from headgate.control.address import CoordinatorAddress
    from headgate.stream.graph.stages import JobGraph
    from headgate.stream.runtime.task import StreamTask

_LOG: Final = logging.getLogger("headgate.stream")
#: Addresses to listen on that are none to connect to.
_ALL_ADDRESSES: Final = {"0.0.0.0", "::"}  # noqa: S104 - compared only
#: Seconds between two looks at the coordinator's heartbeats while there is nothing to read.
_LOOK: Final = 1.0
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
        address: of the coordinator.
        options: of the environments. By default they listen on the address from which this worker reaches the coordinator.
    """

    def __init__(
        self,
        graph: JobGraph,
        name: str,
        number: int,
        address: CoordinatorAddress,
        options: Mapping[str, Any],
    ) -> None:
        self._graph = graph
        self._name = name
        self._number = number
        self._address = address
        self._options = options
        self._connection: WorkerConnection | None = None
        self._sending = threading.Lock()
        self._deployment: Deployment | None = None
        self._shared = SharedObjects()
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="headgate-snapshots")
        self._ended = threading.Event()
        self._is_stopped = False

    def run(self) -> None:
        """Run until the coordinator stops this worker.

        Raises:
            CoordinatorError: it cannot be reached any more.
        """
        connection = self._connection = WorkerConnection(
            self._address, CODEC, is_wanted=lambda: not self._is_stopped
        )
        reporter = threading.Thread(target=self._report, name="headgate-reports", daemon=True)
        heartbeats: DriverHeartbeats | None = None
        try:
            host, group = socket.gethostname(), memory_group()
            about: dict[str, Any] = {"host": host, "pid": os.getpid()}
            about["memory_group"] = None if group is None else asdict(group)
            self._send("HELLO", worker=self._number, **about)
            heartbeats = DriverHeartbeats(self._address, CODEC, connection)
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
            # The coordinator waits for the end of the connection.
            self._shared.close()
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
                _HANDLERS[message.kind](self, deployment, message)

    def _deploy(self, message: Message) -> None:
        self._cancel()
        attempt = message["attempt"]
        if self._connection is None:
            raise InternalError("the worker has no connection")
        own_host = str(self._connection.sock.getsockname()[0])
        options = {"listen": f"{own_host}:0", **self._options}
        deployment = Deployment(
            self._graph,
            self._name,
            attempt,
            self._address,
            options,
            message,
            self._tell,
            self._writers,
            self._shared,
        )
        self._deployment = deployment
        host, port = deployment.environment.address
        self._send(
            "DEPLOYED",
            attempt=attempt,
            partitions=deployment.partitions(),
            host=own_host if host in _ALL_ADDRESSES else host,
            port=port,
            process=deployment.environment.process_id.hex(),
        )

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
            (message["savepoint"] or "").encode() if message["has_state"] else COMMIT_ONLY,
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
        for task in deployment.tasks.values():
            task.abort_checkpoint(message["checkpoint"], message["reason"])
        deployment.discard(message["checkpoint"])

    def _assign(self, deployment: Deployment, message: Message) -> None:
        splits = [(split_id, from_base64(body)) for split_id, body in message["splits"]]
        version = message["version"]
        self._source(deployment, message).for_source(
            lambda source: source.add_splits(version, splits)
        )

    def _no_more_splits(self, deployment: Deployment, message: Message) -> None:
        self._source(deployment, message).for_source(lambda source: source.no_more_splits())

    def _event(self, deployment: Deployment, message: Message) -> None:
        event = SourceEvent(message["name"], from_base64(message["payload"]))
        self._source(deployment, message).for_source(lambda source: source.source_event(event))

    def _align(self, deployment: Deployment, message: Message) -> None:
        limit = message["ms"]
        self._source(deployment, message).for_source(lambda source: source.align(limit))

    def _tokens(self, deployment: Deployment, message: Message) -> None:
        deployment.take_tokens(message)

    def _drain(self, deployment: Deployment, message: Message) -> None:  # noqa: ARG002 - as others
        for stage in self._graph.stages:
            if stage.head.source is not None:
                for task in deployment.tasks_of(stage.number):
                    task.for_source(lambda source: source.stop(drain=True))

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

    def _report(self) -> None:
        before = 0
        while not self._ended.wait(_REPORT):
            deployment = self._deployment
            if deployment is not None:
                busy = sum(task.metrics.busy_ns for task in deployment.tasks.values())
                # Tasks that do less do not wait for each other, and naps would wake up an idle process.
                is_busy = busy - before >= _REPORT * 1e9
                deployment.lock_wait_us = lock_wait_us() if is_busy else 0
                before = busy
                deployment.tell_figures()


#: Kind of a message of the coordinator about a deployment -> handles it.
_HANDLERS: Final[dict[str, Callable[[StreamWorker, Deployment, Message], None]]] = {
    "CONNECT": StreamWorker._connect,  # noqa: SLF001 - of this file
    "TRIGGER": StreamWorker._trigger,  # noqa: SLF001
    "COMPLETE": StreamWorker._complete,  # noqa: SLF001
    "ABORT": StreamWorker._abort,  # noqa: SLF001
    "ASSIGN": StreamWorker._assign,  # noqa: SLF001
    "NO_MORE_SPLITS": StreamWorker._no_more_splits,  # noqa: SLF001
    "EVENT": StreamWorker._event,  # noqa: SLF001
    "ALIGN": StreamWorker._align,  # noqa: SLF001
    "TOKENS": StreamWorker._tokens,  # noqa: SLF001
    "DRAIN": StreamWorker._drain,  # noqa: SLF001
    "FINISH": StreamWorker._finish,  # noqa: SLF001
}
