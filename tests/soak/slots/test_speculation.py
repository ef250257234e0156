"""Spark's speculative copies of producers and consumers: exactly one attempt of each task counts.

Copies only run on another host, so this test starts a cluster with workers on two loopback
addresses. It takes a minute.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.spark.outcomes import wait_for

pytestmark = pytest.mark.timeout(400)

SCRIPT = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats
from headgate.spark.driver.coordinator import Coordinator

master, folder, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
spark = (SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.showConsoleProgress", "false").config("spark.headgate.memory", "16m")
    .config("spark.headgate.mode", "pipelined")
    .config("spark.executor.memory", "512m").config("spark.cores.max", "12")
    .config("spark.speculation", "true").config("spark.speculation.interval", "100ms")
    .config("spark.speculation.quantile", "0.1").config("spark.speculation.multiplier", "1.1")
    .config("spark.speculation.minTaskRuntime", "100ms").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)
came, message_of = [], Coordinator.message

def message(self, connection, exchange_id, message, now):
    if message.kind in ("PRODUCER", "CONSUMER"):
        came.append((message.kind, message["partition"], message["attempt"]))
        role = "CONSUMER" if what == "reduce" else "PRODUCER"
        if len({attempt for *who, attempt in came if who == [role, 0]}) > 1:
            (folder / "copied").touch()
    message_of(self, connection, exchange_id, message, now)

Coordinator.message = message

def slow_once(batches):
    from pyspark import TaskContext
    slow = TaskContext.get().partitionId() == 0
    if slow:
        try:
            (folder / "slow").open("x").close()
        except FileExistsError:
            slow = False
    for batch in batches:
        # Wait until the copy runs. The time until Spark starts it depends on the machine.
        end = time.monotonic() + 90
        while slow and not (folder / "copied").exists() and time.monotonic() < end:
            time.sleep(0.1)
        slow = False
        yield batch

df = spark.range(0, 20_000, 1, 4)
result = exchange(df, by="id", num_partitions=4, schema=df.schema, **{what: slow_once})
started = time.monotonic()
rows = tuple(result.selectExpr("sum(id)", "count(id)", "count(distinct id)").first())
seconds = time.monotonic() - started
stats = last_stats()
print(json.dumps([rows, came, seconds, stats.state, stats.rows]))
spark.stop()
"""


def spark_class(*args, folder, **env):
    import pyspark

    home = Path(pyspark.__file__).parent
    return subprocess.Popen(
        [str(home / "bin" / "spark-class"), *map(str, args)],
        stdout=subprocess.DEVNULL,
        stderr=(folder / f"{args[0].rpartition('.')[2]}.log").open("a"),
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, **env},
        cwd=folder,
    )


def free_port():
    """Return a port below those that the kernel hands out, so that no other process gets it before its server."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a master and two workers on two hosts; yield the master's address."""
    folder, port, page = tmp_path_factory.mktemp("cluster"), free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:

        def start(*args, **env):
            process = stack.enter_context(spark_class(*args, folder=folder, **env))
            stack.callback(process.terminate)

        where = ["--host", "127.0.0.1", "--port", port, "--webui-port", page]
        start(f"{deploy}.master.Master", *where, SPARK_LOCAL_IP="127.0.0.1")
        for host in ("127.0.0.2", "127.0.0.3"):
            size = ["--cores", 6, "--memory", "1g", "--work-dir", folder / host, "--host", host]
            own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(folder / f"local-{host}")}
            start(f"{deploy}.worker.Worker", *size, "--webui-port", 0, master, **own)

        def workers():
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{page}/json/") as answer,
            ):
                return json.load(answer)["aliveworkers"]
            return 0

        assert wait_for(lambda: workers() == 2, 120), "the cluster did not start"
        yield master


KEPT = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats

master, folder, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
spark = (SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.showConsoleProgress", "false").config("spark.headgate.memory", "16m")
    .config("spark.headgate.mode", "kept")
    .config("spark.executor.memory", "512m").config("spark.cores.max", "12")
    .config("spark.speculation", "true").config("spark.speculation.interval", "100ms")
    .config("spark.speculation.quantile", "0.1").config("spark.speculation.multiplier", "1.1")
    .config("spark.speculation.minTaskRuntime", "100ms").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)
SCHEMA = "id long, producer int, attempt long, pad string"

def attempts_of(partition):
    return list(folder.glob(f"ran-{partition}-*"))

def first_of(partition):
    try:
        (folder / f"first-{partition}").open("x").close()
    except FileExistsError:
        return False
    return True

def wait_for(path):
    end = time.monotonic() + 90
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)

def slow_producer(batches):
    # The first attempt at task 1 has kept its pages when the second one ends, and then waits.
    import pyarrow as pa
    from pyspark import TaskContext
    from headgate.spark.tasks import kept_producer
    partition, attempt = TaskContext.get().partitionId(), TaskContext.get().taskAttemptId()
    (folder / f"ran-{partition}-{attempt}").touch()
    kept = folder / "kept"
    is_first = partition == 1 and first_of(partition)
    write = kept_producer.write_indexes
    def write_and_wait(place, subpartitions):
        kept_producer.write_indexes = write
        write(place, subpartitions)
        kept.touch()
        time.sleep(60)
    for batch in batches:
        n = batch.num_rows
        columns = {"id": batch["id"], "producer": pa.array([partition] * n, pa.int32()),
                   "attempt": pa.array([attempt] * n, pa.int64()), "pad": pa.array(["x" * 300] * n)}
        yield pa.RecordBatch.from_pydict(columns)
    if is_first:
        kept_producer.write_indexes = write_and_wait
        while len(attempts_of(1)) < 2:
            time.sleep(0.02)
    elif partition == 1:
        wait_for(kept)

def slow_consumer(batches):
    from pyspark import TaskContext
    partition, attempt = TaskContext.get().partitionId(), TaskContext.get().taskAttemptId()
    (folder / f"ran-{partition}-{attempt}").touch()
    is_first = partition == 1 and first_of(partition)
    yield from batches
    if is_first:
        while len(attempts_of(1)) < 2:
            time.sleep(0.02)

def plain(batches):
    import pyarrow as pa
    for batch in batches:
        columns = {"id": batch["id"], "producer": pa.array([0] * batch.num_rows, pa.int32()),
                   "attempt": pa.array([0] * batch.num_rows, pa.int64()),
                   "pad": pa.array(["x" * 300] * batch.num_rows)}
        yield pa.RecordBatch.from_pydict(columns)

def same(batches):
    yield from batches

df = spark.range(0, 20_000, 1, 6)
if what == "map":
    functions = {"map": slow_producer, "reduce": same}
else:
    functions = {"map": plain, "reduce": slow_consumer}
result = exchange(df, by="id", num_partitions=6, map_schema=SCHEMA, schema=SCHEMA, **functions)
rows = result.select("id", "producer", "attempt").collect()
stats = last_stats()
ids = [row["id"] for row in rows]
mixed = {}
for row in rows:
    mixed.setdefault(row["producer"], set()).add(row["attempt"])
spark.stop()
print(json.dumps([[sum(ids), len(ids), len(set(ids))], len(attempts_of(1)),
    [sorted(a) for _, a in sorted(mixed.items())], stats.producers, (folder / "kept").exists()]))
"""


@pytest.mark.parametrize("what", ["map", "reduce"])
def test_of_speculative_copies_in_a_kept_exchange_one_is_read(cluster, tmp_path, what):
    script = tmp_path / "driver.py"
    script.write_text(KEPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), cluster, str(tmp_path), what],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows, attempts, read, producers, kept = json.loads(done.stdout.splitlines()[-1])
    print(f"{what}: {attempts} attempts at task 1, of the producers these were read: {read}")
    assert rows == [sum(range(20_000)), 20_000, 20_000]
    assert attempts >= 2, "Spark started no copy"
    assert kept == (what == "map"), "the losing attempt had kept its pages"
    assert producers == 6
    assert all(len(one) == 1 for one in read), "rows of two attempts at one producer"


@pytest.mark.parametrize("what", ["map", "reduce"])
def test_of_speculative_copies_exactly_one_counts(cluster, tmp_path, what):
    script = tmp_path / "driver.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), cluster, str(tmp_path), what],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows, came, seconds, state, sent = json.loads(done.stdout.splitlines()[-1])
    assert rows == [sum(range(20_000)), 20_000, 20_000]
    assert (state, sent) == ("done", 20_000)
    kind = "CONSUMER" if what == "reduce" else "PRODUCER"
    attempts = {attempt for role, partition, attempt in came if (role, partition) == (kind, 0)}
    print(f"{what}: {len(attempts)} attempts of {kind} 0, {len(came)} tasks, {seconds:.1f} s")
    assert len(attempts) >= 2, "Spark started no copy"
