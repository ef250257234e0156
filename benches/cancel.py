"""Seconds from the cancellation of an action until none of its tasks is left and its workers are free.

The functions sleep for minutes over their first batch. ``cancelAllJobs`` is called once they have
begun; the clock stops when the action has raised and no executor runs a task any more. The peers are an
ordinary ``mapInArrow`` with the same function, and 5 seconds, the most that it should take, as a
contestant that always takes exactly those.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from benches import harness
from benches.spark import rows_of, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange

ROWS = 20_000
#: Seconds that a function sleeps, and seconds within which a cancelled action should end.
SLEEP, PROMISED = 300.0, 5.0


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session("local[4]")
    rows = rows_of(spark, ROWS)
    try:
        with tempfile.TemporaryDirectory() as folder:
            begun = Path(folder) / "begun"
            sleeps = partial(sleep, str(begun))
            by_key = partial(exchange, rows, by="key", progress="off")
            harness.compare(
                "cancel",
                "from cancelAllJobs to the last task's end, functions that sleep; local[4]",
                {
                    "headgate, map": lambda: cancelled(spark, begun, by_key(map=sleeps)),
                    "headgate, reduce": lambda: cancelled(spark, begun, by_key(reduce=sleeps)),
                    "mapInArrow": lambda: cancelled(
                        spark, begun, rows.mapInArrow(sleeps, rows.schema)
                    ),
                    "promised": lambda: PROMISED,
                },
                [
                    harness.Ratio("cancel_map", "promised", "headgate, map", goal=1.0),
                    harness.Ratio("cancel_reduce", "promised", "headgate, reduce", goal=1.0),
                ],
                turns=options.turns,
                size=0,
                quick=options.quick,
            )
    finally:
        spark.stop()


def sleep(begun: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        Path(begun).touch()
        time.sleep(SLEEP)
        yield batch


def cancelled(spark: SparkSession, begun: Path, frame: DataFrame) -> float:
    """Run an action, cancel it while a function sleeps, return the seconds until no task is left."""
    begun.unlink(missing_ok=True)
    errors: list[BaseException] = []
    action = threading.Thread(target=raises, args=(frame.collect, errors), daemon=True)
    action.start()
    while not begun.exists():
        if errors:
            raise AssertionError("the action ended by itself") from errors[0]
        time.sleep(0.01)
    started = time.perf_counter()
    spark.sparkContext.cancelAllJobs()
    action.join()
    while running_tasks(spark):
        time.sleep(0.01)
    seconds = time.perf_counter() - started
    if "cancel" not in str(errors[0]).lower():
        raise errors[0]
    return seconds


def raises(action: Callable[[], object], errors: list[BaseException]) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the thread that waits looks at it
        errors.append(error)


def running_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    return sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())
