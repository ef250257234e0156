"""The start of each task of Headgate in a worker, whatever it does."""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

from headgate import _native
from headgate._missing import has_native
from headgate.errors import WorkerPythonError
from headgate.spark.tasks.heap import settle
from headgate.spark.tasks.memory import begin_task
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
    begin_task()
    rows: Iterator[pa.RecordBatch] = module.run(
        unpickled(task),
        without_delays(batches),
    )
    return _native.OwnFrames(rows, _shown) if has_native() else _with_a_frame(rows)


def unpickled(data: bytes) -> Any:
    """Return what the driver has pickled.

    Raises:
        WorkerPythonError: a function is of a module that this Python does not find.
    """
    try:
        return pickle.loads(data)  # noqa: S301 - from the driver's own closure
    except ModuleNotFoundError as error:
        raise WorkerPythonError(
            f"the Python of the tasks does not find the module {error.name}, of which your job has a function or a class",
            have=f"{sys.executable}, sys.path without the folder of {error.name}",
            remedy=f'spark.sparkContext.addPyFile("{str(error.name).partition(".")[0]}.py") · spark-submit --py-files · '
            "install the module on every executor · define the function in the script",
        ) from error


def _with_a_frame(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the same without the native module: each error has a frame of Headgate more."""
    failure: BaseException | None = None
    try:
        yield from rows
    except Exception as error:  # noqa: BLE001 - raised below, without this one as its context
        failure = _shown(error)
    if failure is not None:
        raise failure


def _shown(error: BaseException) -> BaseException:
    return shown(error.error if isinstance(error, UserFunctionFailed) else error)
