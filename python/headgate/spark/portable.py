"""Functions that Spark can ship to a worker whose Python may lack headgate."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from headgate._unpicklable import culprit
from headgate.errors import OptionError, WorkerPythonError
from headgate.spark.py4j_logs import keep_secrets_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def portable(task: Any, body: str, name: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for ``mapInArrow`` that is pickled by value and imports headgate when called.

    So a worker whose Python lacks headgate raises a clear error instead of failing to unpickle.

    Args:
        task: what ``run`` of the module gets, pickled here; or bytes of :func:`pickled`.
        body: the module whose ``run(task, batches)`` does the work.
        name: of the step, as ``explain()`` and Spark's UI show it.

    Raises:
        OptionError: a function of the task holds what cannot be pickled.
    """
    keep_secrets_out()
    data = task if isinstance(task, bytes) else pickled(task)
    missing = WorkerPythonError(
        "the Python that runs the tasks has no headgate", have="{python}: {error}"
    )
    text = str(missing)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib  # noqa: PLC0415 - in the worker
        import sys  # noqa: PLC0415 - in the worker

        try:
            entry = importlib.import_module("headgate.spark.tasks.entry")
        except ImportError as error:
            raise ImportError(text.format(python=sys.executable, error=error)) from error
        return entry.run(body, data, batches)  # type: ignore[no-any-return]

    run.__name__ = name
    return run


def pickled(task: Any) -> bytes:
    """Return a task as a worker unpickles it.

    Raises:
        OptionError: a function of the task holds what cannot be pickled.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - pyspark only where Spark is

    try:
        return cloudpickle.dumps(task)  # type: ignore[no-any-return, no-untyped-call]
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        values = [("", getattr(task, field.name)) for field in fields(task)]
        reason = culprit(values, cloudpickle.dumps) or f"{type(error).__name__}: {text}"
        raise OptionError(
            f"a function cannot be sent to the workers: {reason}",
            remedy="make it where it is used, in the function · collect() what it needs of a DataFrame first",
        ) from error
