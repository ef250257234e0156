"""Workers on this machine: threads of this process, processes, or both."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from headgate._unpicklable import culprit
from headgate.control.cause import Cause
from headgate.errors import (
    CoordinatorError,
    HeadgateError,
    InternalError,
    StreamError,
)
from headgate.stream.job.lost_worker import how_it_ended, lost_worker
from headgate.stream.job.pool import Endpoint
from headgate.stream.job.worker import StreamWorker

if TYPE_CHECKING:
    from headgate.control.address import CoordinatorAddress
    from headgate.stream.graph.stages import JobGraph

_LOG: Final = logging.getLogger("headgate.stream")
#: The place in which workers have no resources, as a clause.
NO_RESOURCES: Final = "on this machine"
#: Seconds in which workers have to end once they were told to.
_END: Final = 30.0
#: Seconds in which a process ends whose connection has ended.
_EXIT: Final = 0.5
#: Seconds in which processes end that have closed their connections.
_GRACE: Final = 2.0


class ThreadWorkers:
    """One worker in this process, whose tasks are threads.

    Args:
        graph: the job.
        name: of the job.
        options: of the environment.
    """

    #: Threads share an environment.
    size = 1
    no_resources = NO_RESOURCES

    def __init__(self, graph: JobGraph, name: str, options: Mapping[str, Any]) -> None:
        self._graph, self._name, self._options = graph, name, options
        self.endpoint = _endpoint(options)
        self._threads: list[threading.Thread] = []
        #: The last one, which may wait for a coordinator that has ended.
        self._worker: StreamWorker | None = None
        self._ended: dict[int, Cause] = {}

    def start(self, number: int, address: CoordinatorAddress) -> None:
        """Start the worker in a thread."""
        self._ended.pop(number, None)
        worker = StreamWorker(self._graph, self._name, number, address, self._options)
        self._worker = worker

        def run() -> None:
            try:
                worker.run()
            except CoordinatorError:
                _LOG.debug("the coordinator of %s has ended", self._name, exc_info=True)
            except Exception as error:  # noqa: BLE001 - the coordinator asks for it
                _LOG.exception("the worker of %s ended", self._name)
                self._ended[number] = Cause.of(error, where=f"worker {number}")

        thread = threading.Thread(target=run, name=f"headgate-worker-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def ended(self) -> Mapping[int, Cause]:
        """Return the worker, if it has ended by an error."""
        ended, self._ended = self._ended, {}
        return ended

    def end_of(self, number: int) -> str:  # noqa: ARG002 - as others
        """Return nothing: the process is this one."""
        return ""

    def stop(self) -> None:
        """Wait for the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        for thread in self._threads:
            thread.join(_END)


class ProcessWorkers:
    """Workers that are processes of their own.

    Args:
        graph: the job.
        name: of the job.
        options: of the environments.
        size: number of processes.

    Raises:
        StreamError: a function of the job cannot be pickled.
    """

    no_resources = NO_RESOURCES

    def __init__(self, graph: JobGraph, name: str, options: Mapping[str, Any], size: int) -> None:
        self.size = size
        self.endpoint = _endpoint(options)
        self._job = dumped((graph, name, dict(options)))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        #: Workers that have not been seen to end.
        self._running: set[int] = set()

    def ended(self) -> Mapping[int, Cause]:
        """Return workers whose process has ended."""
        ended = {number for number in self._running if self.processes[number].poll() is not None}
        self._running -= ended
        return {number: lost_worker(number, self.end_of(number)) for number in ended}

    def end_of(self, number: int) -> str:
        """Return the exit status of a worker's process."""
        try:
            return how_it_ended(self.processes[number].wait(_EXIT))
        except subprocess.TimeoutExpired:
            return "its process still runs"

    def start(self, number: int, address: CoordinatorAddress) -> None:
        """Start a process, and end the one before it."""
        before = self.processes.get(number)
        if before is not None:
            before.kill()
            before.wait()
        command = [sys.executable, "-m", "headgate.stream.job.process"]
        # Its standard input stays open: it ends with this process, whatever becomes of that.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - our own module
        self.processes[number] = process
        self._running.add(number)
        with suppress(BrokenPipeError):  # it has ended already, and is started again
            _write(process.stdin, pickle.dumps((number, address, sys.path)))
            _write(process.stdin, self._job)

    def stop(self) -> None:
        """Wait for all processes, and end those that do not end by themselves."""
        deadline = time.monotonic() + _GRACE
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        # A process ends with its standard input. One that never reached the coordinator was not told to stop.
        for process in self.processes.values():
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class ThreadsAndProcesses:
    """Workers of both kinds: the threads of this process are number 0, and processes run stages of their own.

    Args:
        graph: the job.
        name: of the job.
        options: of the environments.
        processes: number of processes.

    Raises:
        StreamError: a function of the job cannot be pickled.
    """

    no_resources = NO_RESOURCES

    def __init__(
        self, graph: JobGraph, name: str, options: Mapping[str, Any], processes: int
    ) -> None:
        self._processes = ProcessWorkers(graph, name, options, processes)
        self._threads = ThreadWorkers(graph, name, options)
        self.size = self._threads.size + processes
        self.endpoint = self._threads.endpoint

    def _of(self, number: int) -> ThreadWorkers | ProcessWorkers:
        return self._threads if number < self._threads.size else self._processes

    def start(self, number: int, address: CoordinatorAddress) -> None:
        """Start a worker of its kind."""
        self._of(number).start(number, address)

    def ended(self) -> Mapping[int, Cause]:
        """Return workers of both kinds that have ended."""
        return {**self._threads.ended(), **self._processes.ended()}

    def end_of(self, number: int) -> str:
        """Return how a worker has ended."""
        return self._of(number).end_of(number)

    def stop(self) -> None:
        """Wait for all."""
        self._processes.stop()
        self._threads.stop()


def _endpoint(options: Mapping[str, Any]) -> Endpoint:
    return Endpoint(tls=options.get("tls") == "require")


def dumped(job: tuple[JobGraph, Any, Any]) -> bytes:
    """Return a job's graph, name and options as bytes, by cloudpickle if there is one: it takes lambdas and classes of ``__main__``.

    Raises:
        StreamError: a function cannot be pickled.
    """
    dumps: Callable[[Any], bytes] = pickle.dumps
    with suppress(ImportError):
        from pyspark.cloudpickle import dumps  # noqa: PLC0415 - optional
    try:
        return dumps(job)
    except HeadgateError:
        raise
    except Exception as error:
        raise StreamError(
            f"the job cannot be sent to other processes: {type(error).__name__}: {error}",
            have=culprit(_objects(job[0]), dumps),
            remedy="make it where it is used, such as in open() · functions of a module · pip install pyspark, whose pickler takes lambdas · no workers= for threads",
        ) from error


def _objects(graph: JobGraph) -> Iterator[tuple[str, Any]]:
    """Yield what users gave to the operators of a job, with the operator's name."""
    for stage in graph.stages:
        for node in stage.operators:
            yield from (
                (node.uid, value)
                for value in (node.make, node.shared, node.source, node.watermarks)
            )


def _write(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is None:
        raise InternalError("a worker process has no standard input")
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def run_process() -> int:
    """Run the worker that the standard input describes. It ends at once if the coordinator's process does."""
    number, address, path = pickle.loads(_read())  # noqa: S301 - our own parent wrote it
    sys.path[:] = path
    graph, name, options = pickle.loads(_read())  # noqa: S301 - our own parent wrote it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    StreamWorker(graph, name, number, address, options).run()
    return 0


def _read() -> bytes:
    # The descriptor itself: sys.stdin has a lock, which a thread that waits would hold at the end of the process.
    return _exactly(int.from_bytes(_exactly(8), "big"))


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(1)  # The parent has ended.
        data += more
    return data


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
