"""One of two executors is killed while consumers run: the time of an undisturbed run over the time of this one.

The rows are those of the bench ``spark``, the functions do nothing, and the result goes to the ``noop`` sink. The
consumer in the middle kills its executor by SIGKILL at its first batch, and what this executor's producers made is lost.
Spark runs them again, at first on the other executor alone, until a new one is up. Its own path, ``mapInArrow`` ->
``repartition("key")`` -> ``mapInArrow``, is disturbed in the same way.

Spark's settings have their defaults. A consumer that reads from the lost executor then waits for 5 s
(``spark.shuffle.io.retryWait``) before it fails, and only then do the producers run again.

Before each run, outside its time, both executors are up and have run a small job. The rows of all runs are compared before
anything is timed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from benches import harness
from benches.spark import (
    INPUTS,
    ROW_BYTES,
    ROWS,
    Function,
    answer,
    by_headgate,
    by_repartition,
    check,
    rows_of,
    same,
    saving,
    session,
)
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

MASTER = "local-cluster[2,1,2048]"
PARTITIONS = 8
#: The consumer that kills its executor.
KILLER = PARTITIONS // 2
#: Seconds in which a killed executor must be replaced.
READY = 60

Plan = Callable[[DataFrame, Function], DataFrame]


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(MASTER)
    try:
        compare(spark, options.turns, quick=options.quick)
    finally:
        spark.stop()


def compare(spark: SparkSession, turns: int, *, quick: bool) -> None:
    # Long enough that the start of an executor is not most of it.
    rows = 2 * ROWS // (100 if quick else 1)
    df, few = rows_of(spark, rows), rows_of(spark, rows // 20)
    plans: dict[str, Plan] = {"headgate": headgate, "repartition": repartition}
    runs: dict[str, Callable[[Callable], Any]] = {}
    for name, plan in plans.items():
        runs[name] = partial(undisturbed, plan, df)
        runs[f"{name}, executor killed"] = partial(disturbed, plan, df)

    def prepared(run: Callable[[Callable], Any], use: Callable) -> Any:
        # Spark deletes the files of earlier runs.
        spark.sparkContext._jvm.System.gc()
        wait_for_executors(spark)
        for plan in plans.values():
            undisturbed(plan, few, seconds)
        return run(use)

    check({name: prepared(run, lambda plan: answer(plan())) for name, run in runs.items()})
    harness.compare(
        "recovery",
        f"{rows:,} rows by key to {PARTITIONS} partitions on {MASTER}, {INPUTS} inputs, to the noop sink",
        {name: partial(prepared, run, seconds) for name, run in runs.items()},
        [
            harness.Ratio("recovery", "headgate", "headgate, executor killed", goal=0.6),
            harness.Ratio("recovery_spark", "repartition", "repartition, executor killed"),
        ],
        turns=turns,
        size=rows * ROW_BYTES,
        quick=quick,
    )


def headgate(df: DataFrame, reduce: Function) -> DataFrame:
    return by_headgate(df, "kept", PARTITIONS, reduce=reduce)


def repartition(df: DataFrame, reduce: Function) -> DataFrame:
    return by_repartition(df, PARTITIONS, reduce)


def seconds(plan: Callable[[], DataFrame]) -> float:
    return saving(plan)()


def undisturbed(plan: Plan, df: DataFrame, use: Callable) -> Any:
    """Return what ``use`` makes of a function that plans the job."""
    return use(lambda: plan(df, same))


def disturbed(plan: Plan, df: DataFrame, use: Callable) -> Any:
    with killing() as reduce:
        return use(lambda: plan(df, reduce))


@contextmanager
def killing() -> Iterator[Function]:
    """Yield a function of consumers of which one kills its executor, once."""
    with TemporaryDirectory() as folder:
        marker = Path(folder) / "killed"

        def reduce(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if TaskContext.get().partitionId() == KILLER and is_first(marker):
                    kill_executor()
                yield batch

        yield reduce
        if not marker.exists():
            raise AssertionError("no executor was killed")


def is_first(marker: Path) -> bool:
    """Create a file; return True if it did not exist."""
    try:
        marker.open("x").close()
    except FileExistsError:
        return False
    return True


def kill_executor() -> None:
    # A worker is a child of a daemon, which is a child of the executor.
    os.kill(parent(os.getppid()), signal.SIGKILL)
    time.sleep(READY)


def parent(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("PPid")).split()[1])


def wait_for_executors(spark: SparkSession) -> None:
    scala = spark.sparkContext._jsc.sc()
    end = time.monotonic() + READY
    # The driver is one of three.
    while scala.getExecutorMemoryStatus().size() < 3:
        if time.monotonic() > end:
            raise AssertionError(f"no two executors after {READY} s")
        time.sleep(0.1)
