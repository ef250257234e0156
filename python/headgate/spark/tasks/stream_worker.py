"""The body of a task that is a worker of a streaming job, until the coordinator stops it."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.control.cause import Cause
from headgate.spark.tasks.entry import unpickled
from headgate.spark.tasks.identity import this_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.control.address import CoordinatorAddress


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A worker of a streaming job.

    Attributes:
        address: where the coordinator is.
        job: pickled: graph, name, options of the environment.
    """

    address: CoordinatorAddress
    job: bytes


def run(task: WorkerTask, numbers: Iterable[int]) -> Iterator[bytes]:
    """Run the worker whose number is the only row; yield the cause of its end as JSON, if it was not stopped.

    A Spark task is one life of a worker: the coordinator, which has lost it, starts another task. So Spark's own
    retry of a task whose process was killed does nothing.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - pyspark only where Spark is

    (number,) = numbers
    context = TaskContext.get()
    if context is None or context.attemptNumber() > 0:
        return
    from headgate.stream.job.worker import StreamWorker  # noqa: PLC0415 - a retry of Spark needs none of it

    try:
        graph, name, options = unpickled(task.job)
        StreamWorker(graph, name, number, task.address, options).run()
    except Exception as error:  # noqa: BLE001 - the driver gets it
        me = this_task()
        where = f"worker {number} of partition {me.partition}, stage {me.stage}, task {me.attempt}"
        cause = Cause.of(error, where=f"{where} on {socket.gethostname()}")
        yield json.dumps(cause.fields()).encode()
