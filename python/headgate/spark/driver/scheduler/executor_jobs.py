"""Spark jobs of one task that is meant for a certain executor."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_PORT: Final = re.compile(r":\d+$")


def row_on(context: SparkContext, number: int, location: str) -> RDD[int]:
    """Return an RDD with one row, whose task Spark starts at a location if it can."""
    from pyspark import RDD  # noqa: PLC0415 - pyspark only where Spark is
    from pyspark.serializers import CPickleSerializer  # noqa: PLC0415

    # PySpark cannot say where a partition is best computed, Spark's makeRDD can.
    jvm: Any = context._jvm  # noqa: SLF001
    locations = jvm.PythonUtils.toSeq([location] if location else [])
    rows = jvm.PythonUtils.toSeq([jvm.scala.Tuple2(bytearray(pickle.dumps(number)), locations)])
    kind = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").AnyRef()
    rdd = context._jsc.sc().makeRDD(rows, kind)  # noqa: SLF001
    return RDD(rdd.toJavaRDD(), context, CPickleSerializer())


def submitted(rdd: RDD[Any]) -> Any:
    """Submit a job with the rows of an RDD as its result, and return its future in the JVM."""
    from pyspark.serializers import NoOpSerializer  # noqa: PLC0415 - pyspark only where Spark is

    # The rows are plain bytes: the driver unpickles nothing that a worker sends.
    rdd._jrdd_deserializer = NoOpSerializer()  # noqa: SLF001
    return rdd._jrdd.collectAsync()  # noqa: SLF001


def is_running(context: SparkContext, future: Any) -> bool:
    """Return True if Spark runs a task of a submitted job, as far as it says."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(int(job)) for job in future.jobIds()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return any(stage.numActiveTasks for stage in stages if stage)


def executors(context: SparkContext) -> list[str]:
    """Return the locations of all executors, as Spark names them: ``executor_HOST_ID``."""
    listed = context._jsc.sc().statusStore().executorList(True)  # noqa: SLF001 - PySpark does not list them
    summaries = [listed.apply(at) for at in range(listed.size())]
    named = [(str(e.id()), _PORT.sub("", str(e.hostPort()))) for e in summaries]
    return sorted(f"executor_{host}_{name}" for name, host in named if name != "driver")
