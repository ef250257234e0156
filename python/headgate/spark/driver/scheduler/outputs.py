"""The output of an executor that nobody can read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


def give_up(context: SparkContext, executor: str) -> None:
    """Make Spark make the output of an executor again, by replacing the executor.

    Less would not do: a stage that goes on has the places of its input in the memory of all executors, and only a fetch
    that fails makes Spark look for them anew.

    Args:
        context: of the application.
        executor: its id.

    Raises:
        RuntimeError: this master cannot replace an executor.
    """
    if not context._jsc.sc().killAndReplaceExecutor(executor):  # noqa: SLF001 - PySpark has no way to this
        raise RuntimeError("Spark did not replace the executor")
