"""Stages with workers and resources of their own on Spark: which tasks run them, and what Spark gives to these."""

import os
import stat
import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit import stream_jobs
from tests.kit.masters import EXECUTORS, HAS_SHARES, MASTER, in_executors
from tests.kit.own_driver import drive

from headgate import errors
from headgate.sink import FileSink

# Executors cannot import the tests.
for _module in (sys.modules[__name__], stream_jobs):
    cloudpickle.register_pickle_by_value(_module)

KEYED = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms"))])
WHERE = pa.schema([*KEYED, ("before", pa.int64()), ("in", pa.int64())])
#: A machine with two GPUs, as far as Spark knows.
SCRIPT = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["0", "1"]}'
"""


def before(batch):
    return batch.append_column("before", pa.array([os.getpid()] * batch.num_rows, pa.int64()))


def called(row):
    return {**row, "in": os.getpid()}


def job(folder, rows=500, **options):
    numbers = stream_jobs.numbers(rows).map(before, name="before")
    called_rows = numbers.map_async(called, schema=WHERE, name="calls", ordered=False, **options)
    return called_rows.sink(FileSink(str(folder / "out")), name="files")


@pytest.mark.parametrize(
    "resources",
    [
        None,
        pytest.param(
            {"cpus": 1},
            marks=pytest.mark.skipif(not HAS_SHARES, reason="all slots would be those of workers"),
        ),
    ],
)
def test_a_stage_has_tasks_that_run_no_other(spark, tmp_path, resources):
    query = job(tmp_path, workers=2, resources=resources).start(spark=spark, parallelism=2)
    assert query.await_termination(120)
    table = stream_jobs.rows_of(tmp_path / "out")
    assert sorted(table["id"].to_pylist()) == [*range(500)]
    first, inside = (set(table[name].to_pylist()) for name in ("before", "in"))
    assert len(inside) == 2
    assert not first & inside
    assert any(
        "calls -> files has 2 workers of its own" in notice for notice in query.status.notices
    )


@in_executors
def test_a_resource_that_no_executor_has_is_refused(spark, tmp_path):
    with pytest.raises(
        errors.OptionError, match="asks for 'gpu', which the executors do not"
    ) as refused:
        job(tmp_path, resources={"gpu": 1}).start(spark=spark)
    assert "spark.executor.resource.gpu.amount" in refused.value.remedy
    with pytest.raises(errors.NotEnoughSlots, match="needs cpus=3, and no executor has so much"):
        job(tmp_path, resources={"cpus": 3}).start(spark=spark)
    with pytest.raises(errors.NotEnoughSlots, match="need cpus=6 at a time") as few:
        job(tmp_path, resources={"cpus": 2}, workers=3, parallelism=3).start(spark=spark)
    assert "workers=2" in few.value.remedy


@pytest.mark.skipif(MASTER != "local[4]", reason="is about Spark's local mode")
def test_in_local_mode_resources_are_a_label(spark, tmp_path):
    query = job(tmp_path, workers=1, resources={"gpu": 1}).start(spark=spark)
    assert query.await_termination(120)
    assert stream_jobs.rows_of(tmp_path / "out").num_rows == 500
    assert any(
        "which nothing enforces in Spark's local mode" in notice for notice in query.status.notices
    )


JOB = """
import pyarrow as pa
from headgate.errors import HeadgateError
from headgate.sink import FileSink
from headgate.source import NumberSequenceSource
from headgate.stream import stream

FOUND = pa.schema([("id", pa.int64()), ("pid", pa.int64()), ("gpus", pa.string())])

def gpus():
    from pyspark import TaskContext
    resources = TaskContext.get().resources()
    return ",".join(resources["gpu"].addresses) if "gpu" in resources else "none"

def called(batch):
    number = batch.num_rows
    return pa.record_batch([batch["id"], [os.getpid()] * number, [gpus()] * number], schema=FOUND)

def first(batch):
    seen = gpus()
    assert seen == "none", seen
    return batch

def job(folder, **options):
    rows = stream(NumberSequenceSource(0, 400, splits=4, batch_size=10)).map(first, schema=FOUND.remove(2).remove(1))
    rows = rows.map_async(called, schema=FOUND, batch_rows=20, name="calls", **options)
    return rows.sink(FileSink(str(Path(folder).resolve() / "out")))

def found(folder):
    rows = spark.read.parquet(folder + "/out").collect()
    return sorted(row["id"] for row in rows) == list(range(400)), sorted({(row["pid"], row["gpus"]) for row in rows})

def refused(**options):
    try:
        job("refused", **options).start(spark=spark, parallelism=4)
    except HeadgateError as error:
        return str(error)
"""


def with_gpus(folder):
    """Return the conf of workers with two GPUs, of which an executor has one."""
    script = folder / "gpus.sh"
    script.write_text(SCRIPT)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "spark__worker__resource__gpu__amount": "2",
        "spark__worker__resource__gpu__discoveryScript": str(script),
        "spark__executor__resource__gpu__amount": "1",
    }


@in_executors
@pytest.mark.soak
def test_spark_gives_a_gpu_to_each_worker_of_a_stage(tmp_path):
    facts = drive(
        JOB
        + """
job("one", resources={"gpu": 1}).start(spark=spark, parallelism=2).await_termination(120)
is_right, workers = found("one")
job("parts", resources={"gpu": 0.5}).start(spark=spark, parallelism=4).await_termination(120)
_, parts = found("parts")
tell(is_right=is_right, workers=workers, parts=parts, few=refused(resources={"gpu": 1}),
     large=refused(resources={"gpu": 2}), other=refused(resources={"gpus": 1}))
""",
        EXECUTORS,
        tmp_path,
        **with_gpus(tmp_path),
    )
    assert facts["is_right"]
    assert len(facts["workers"]) == 2, "two tasks, each with the GPU of its executor"
    assert {gpu for _, gpu in facts["workers"]} <= {"0", "1"}
    assert len(facts["parts"]) == 4, "two tasks share a GPU"
    assert "need gpu=4 at a time, and the cluster has 2" in facts["few"]
    assert "needs gpu=2, and no executor has so much" in facts["large"]
    assert 'resources={"gpu": 1}' in facts["other"]


@in_executors
@pytest.mark.soak
def test_with_dynamic_allocation_spark_starts_executors_for_a_stage(tmp_path):
    conf = with_gpus(tmp_path)
    del conf["spark__executor__resource__gpu__amount"]
    facts = drive(
        JOB
        + """
eventually(lambda: executors() == 1)
job("one", resources={"gpu": 1}).start(spark=spark, parallelism=2, workers=1).await_termination(180)
is_right, workers = found("one")
tell(is_right=is_right, workers=workers, executors=executors())
""",
        EXECUTORS,
        tmp_path,
        **conf,
        spark__dynamicAllocation__enabled="true",
        spark__dynamicAllocation__shuffleTracking__enabled="true",
        spark__dynamicAllocation__minExecutors="1",
        spark__dynamicAllocation__maxExecutors="4",
        spark__executor__cores="1",
    )
    assert facts["is_right"]
    assert len(facts["workers"]) == 2
    assert {gpu for _, gpu in facts["workers"]} <= {"0", "1"}
    assert facts["executors"] > 1
