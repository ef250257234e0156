"""Names of PySpark and Spark that are no public API, and that Headgate uses, are there; workers start as Headgate needs it.

A failure names what Spark has changed, and what breaks without it. ``scripts/preview_spark.sh`` runs this file with the newest
preview of PySpark.
"""

import ast
import importlib
import inspect
import os
import re
import signal
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest

import headgate
from headgate.spark.driver.interrupts import cancel_on_ctrl_c

PACKAGE = Path(headgate.__file__).parent
#: Modules whose names are documented.
PUBLIC = {
    "pyspark",
    "pyspark.errors",
    "pyspark.resource",
    "pyspark.sql",
    "pyspark.sql.datasource",
    "pyspark.sql.functions",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.types",
}
#: Private attributes of objects that are no internals of Spark.
OURS = {"_context", "_getframe", "_java", "_nearest", "_session"}

#: Attribute of an object of PySpark -> what breaks without it.
ATTRIBUTES = {
    "context._jvm": "kept runs, scans by workers, explain(), stores",
    "context._jsc": "kept runs, the executors of streaming jobs and of the doctor",
    "context._gateway": 'read="auto": values of folders, expressions of columns',
    "context._active_spark_context": "the session of a call without one",
    "session._jvm": "explain(), chains, scans by workers, stores",
    "session._jsparkSession": "explain(), chains, confs, Hadoop's configuration",
    "session._sc": "iterate() with parts: where a part's rows are kept",
    "session.conf._jconf": 'read="auto": confs that change what Spark reads',
    "df._jdf": "explain(), chains, scans by workers, the lifetime of kept files",
    "connected._plan": "explain() on Spark Connect",
    "rdd._jrdd": "workers of streaming jobs, the doctor's tasks",
    "rdd._jrdd_deserializer": "the driver would unpickle what a worker of a streaming job sends",
}

#: Name in a module of PySpark that is not documented -> its first parameters, None for any, and what breaks without it.
NAMES = {
    "pyspark.accumulators.Accumulator": (("aid", "value", "accum_param"), "reports of kept tasks"),
    "pyspark.accumulators.AddingAccumulatorParam": (("zero_value",), "reports of kept tasks"),
    "pyspark.cloudpickle.dumps": (("obj",), "functions cannot be sent to workers"),
    "pyspark.serializers.CPickleSerializer": ((), "workers of streaming jobs, the doctor's tasks"),
    "pyspark.serializers.NoOpSerializer": ((), "workers of streaming jobs, the doctor's tasks"),
    "pyspark.sql.connect.plan.LogicalPlan": (None, "explain() on Spark Connect"),
    "pyspark.sql.conversion.LocalDataToArrowConversion": (None, "df.write before Spark 4.1"),
    "pyspark.sql.pandas.types.from_arrow_schema": (
        ("arrow_schema", "prefer_timestamp_ntz"),
        "schemas of sources",
    ),
    "pyspark.sql.pandas.types.to_arrow_schema": (("schema",), "schemas of DataFrames"),
    # The caller of DataSource.reader(), by which a source knows that filters may come.
    "pyspark.sql.worker.data_source_pushdown_filters.main": (None, "filters of spark.read"),
}

SPARK = "org.apache.spark"
PLAN = f"{SPARK}.sql.catalyst.plans.logical"
#: Class of Spark's JVM -> its methods, and what breaks without them.
METHODS = {
    f"{SPARK}.SparkContext": (
        "statusStore taskScheduler killAndReplaceExecutor makeRDD env getCheckpointDir",
        "kept runs, executors, lost files of an executor, iterate() with parts",
    ),
    f"{SPARK}.api.python.PythonUtils": ("toSeq", "jobs on one executor"),
    f"{SPARK}.scheduler.TaskScheduler": ("rootPool", "the progress of kept runs"),
    f"{SPARK}.scheduler.Pool": ("schedulableQueue", "the progress of kept runs"),
    f"{SPARK}.sql.catalyst.trees.TreeNode": (
        "setTagValue getTagValue children collectLeaves toJSON",
        "explain(), chains, scans by workers",
    ),
    f"{SPARK}.sql.classic.Dataset": ("ofRows queryExecution", "chains, scans by workers"),
    f"{SPARK}.sql.execution.QueryExecution": (
        "analyzed optimizedPlan sparkPlan executedPlan withCachedData",
        "explain(), chains, scans by workers",
    ),
    f"{SPARK}.sql.internal.SessionState": ("newHadoopConf", "stores, scans by workers"),
    f"{PLAN}.MapInArrow": ("functionExpr", "chains, the lifetime of kept files"),
    f"{SPARK}.status.AppStatusStore": ("taskList executorList", "failed tasks, executors"),
    f"{SPARK}.status.api.v1.JacksonMessageWriter": ("mapper", "failed tasks"),
    f"{SPARK}.storage.DiskBlockManager": ("localDirs", "secrets in the driver's blocks"),
}

#: Fact about a worker of mapInArrow -> what breaks if it is not so.
FACTS = {
    "pyspark.daemon forks it": "workers that are reused: frozen modules, the host of an executor",
    "pyspark.worker calls the function": "the frames of Headgate and Spark in tracebacks",
    "it has a TCP connection to the JVM": "exchanges wait 40 ms for delayed acknowledgements",
    "it gets batches one by one": "a task would hold all of its rows",
    "TaskContext has the task": "reports of kept tasks",
    "the SQL execution has an id": "runs of kept exchanges are not told apart",
    "SPARK_LOCAL_DIRS has folders": "kept files are not where Spark removes them",
    "PYSPARK_PYTHON runs it": "the check of the Python of workers",
}


def message(what, breaks):
    return f"Spark has no {what} any more, or another one; Headgate needs it: {breaks}"


@pytest.fixture(scope="module")
def internal(spark):
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import Range

    plan = Range(0, 1, 1)
    return SimpleNamespace(
        context=spark.sparkContext,
        session=spark,
        df=spark.range(1),
        rdd=spark.sparkContext.parallelize([1]),
        connected=DataFrame(plan, object()),
    )


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes(internal, name):
    try:
        value = attrgetter(name)(internal)
    except AttributeError:
        value = None
    assert value is not None, message(name, ATTRIBUTES[name])


@pytest.mark.parametrize("name", NAMES)
def test_names_in_modules(name):
    module, _, attribute = name.rpartition(".")
    first, breaks = NAMES[name]
    try:
        value = getattr(importlib.import_module(module), attribute)
        parameters = () if first is None else tuple(inspect.signature(value).parameters)
    except (ImportError, AttributeError, ValueError) as error:
        pytest.fail(f"{message(name, breaks)} ({error})")
    has = parameters[: len(first or ())]
    assert has == (first or ()), message(f"{name}({', '.join(first or ())})", breaks)


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_jvm(spark, name):
    from py4j.protocol import Py4JError

    wanted, breaks = METHODS[name]
    java = spark.sparkContext._jvm.java
    loader = java.lang.Thread.currentThread().getContextClassLoader()
    try:
        kind = java.lang.Class.forName(name, False, loader)
        methods = spark.sparkContext._jvm.scala.Predef.genericWrapArray(kind.getMethods())
        text = str(methods.mkString("\n"))
    except Py4JError as error:
        pytest.fail(f"{message(name, breaks)} ({error})")
    there = set(re.findall(r"\.([\w$]+)\(", text))
    assert there, "a class has methods"
    missing = sorted(set(wanted.split()) - there)
    assert not missing, message(f"{name}.{', '.join(missing)}", breaks)


def test_ctrl_c_has_a_handler_of_pyspark(spark):
    handler = signal.getsignal(signal.SIGINT)
    module = getattr(handler, "__module__", None) or ""
    # Headgate's stands in the place of PySpark's alone, once there was an exchange.
    is_there = module.startswith("pyspark.") or module == cancel_on_ctrl_c.__module__
    assert is_there, message("handler of Ctrl-C", "Ctrl-C leaves jobs running")


def facts_of_a_worker():
    """Return the function of a task, which is pickled by value, as workers do not import this file."""

    def facts(batches):
        """Say of each fact of a worker if it is so."""
        import sys
        from collections.abc import Iterator

        import pyarrow as pa
        from pyspark import TaskContext

        from headgate.spark.tasks import worker_socket

        frame, callers = sys._getframe(), set()
        while frame is not None:
            callers.add(frame.f_globals.get("__name__"))
            spec = frame.f_globals.get("__spec__")
            callers.add(getattr(spec, "name", None))
            frame = frame.f_back
        command = Path("/proc", str(os.getppid()), "cmdline").read_bytes().split(b"\0")
        connections = list(worker_socket._from_jvm())
        for connection in connections:
            connection.close()
        context = TaskContext.get()
        first = next(batches)
        so = {
            "pyspark.daemon forks it": b"pyspark.daemon" in command,
            "pyspark.worker calls the function": "pyspark.worker" in callers,
            "it has a TCP connection to the JVM": bool(connections),
            "it gets batches one by one": isinstance(batches, Iterator) and first.num_rows == 10,
            "TaskContext has the task": context is not None and context.partitionId() == 0,
            "the SQL execution has an id": bool(context.getLocalProperty("spark.sql.execution.id")),
            "SPARK_LOCAL_DIRS has folders": bool(os.environ.get("SPARK_LOCAL_DIRS")),
            "PYSPARK_PYTHON runs it": sys.executable == os.environ.get("PYSPARK_PYTHON"),
        }
        yield pa.RecordBatch.from_pydict({"fact": list(so), "so": list(so.values())})
        for _ in batches:
            pass

    return facts


@pytest.fixture(scope="module")
def worker(spark):
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        rows = (
            spark.range(0, 30, 1, 1)
            .mapInArrow(facts_of_a_worker(), "fact string, so boolean")
            .collect()
        )
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    return {row["fact"]: row["so"] for row in rows}


@pytest.mark.parametrize("fact", FACTS)
def test_workers(worker, fact):
    assert worker[fact], (
        f"a worker of Spark is another one: not so that {fact}; it breaks: {FACTS[fact]}"
    )


def sources():
    return sorted([*PACKAGE.rglob("*.py"), *PACKAGE.parent.glob("pyspark_headgate/*.py")])


def test_the_lists_have_all_private_attributes_and_no_others():
    used = set()
    for path in sources():
        if "spark" in path.relative_to(PACKAGE.parent).parts:
            for line in path.read_text(encoding="utf-8").splitlines():
                if "SLF001" in line:
                    used |= set(re.findall(r"\._\w+", line.partition("#")[0]))
                used |= set(re.findall(r'getattr\([^,]+, "(_sc)"', line))
    used = {name.removeprefix(".") for name in used} - OURS
    assert used == {name.rpartition(".")[2] for name in ATTRIBUTES}


def test_the_lists_have_all_names_of_undocumented_modules_and_no_others():
    used = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark."):
                used |= {f"{node.module}.{alias.name}" for alias in node.names}
    used = {name for name in used if name.rpartition(".")[0] not in PUBLIC}
    by_string = {"pyspark.sql.worker.data_source_pushdown_filters.main"}
    assert used | by_string == set(NAMES)
