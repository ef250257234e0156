"""Where each task of Headgate begins in a worker, whatever it does."""

from __future__ import annotations

import importlib
import pickle
from typing import TYPE_CHECKING

from headgate import _native
from headgate.spark.tasks.heap import settle
from headgate.spark.tasks.tracebacks import shown
from headgate.spark.tasks.user_function import UserFunctionFailed
from headgate.spark.tasks.worker_socket import without_delays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


def run(body: str, task: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return what a task yields. Its errors have the user's frames alone.

    Args:
        body: the module whose ``run(task, batches)`` does the work.
        task: pickled by the driver.
        batches: what Spark gives to the task.
    """
    module = importlib.import_module(body)
    settle()  # before the user's objects exist
    rows: Iterator[pa.RecordBatch] = module.run(
        pickle.loads(task),  # noqa: S301 - from the driver's own closure
        without_delays(batches),
    )
    return _native.OwnFrames(rows, _shown)


def _shown(error: BaseException) -> BaseException:
    return shown(error.error if isinstance(error, UserFunctionFailed) else error)
