"""Random faults in kept exchanges: the rows are right, and only what was lost runs again.

``HEADGATE_TEST_KEPT_FAULTS=500 pytest tests/soak/chaos/test_kept_chaos.py`` runs five hundred; each is drawn from
its number.
"""

import os
import random
import shutil
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit import processes, sessions

from headgate.spark import exchange, last_stats

#: Variable that every process of the session inherits.
MARK = "HEADGATE_CHAOS"
#: Seconds within which lost executors must be replaced.
READY = 120.0


class NotReady(RuntimeError):
    """The session does not have all of its executors."""


def make_session(mark, folder):
    """Return a session with two executors of three slots. All of its processes have the mark."""
    os.environ[MARK] = mark
    builder = sessions.builder("local-cluster[2,3,1024]", "headgate chaos", folder)
    confs = {
        "spark.task.maxFailures": "4",
        # Dozens of executors are lost, and each one must be replaced.
        "spark.deploy.maxExecutorRetries": "-1",
        # Spark must notice a stopped executor within the limit of a run.
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
        "spark.network.timeoutInterval": "1s",
        "spark.headgate.memory": "64m",
    }
    session = builder.config(map=confs).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def wait_ready(session, mark):
    """Wait until both executors run and Spark knows no others.

    Raises:
        NotReady: this is not so after :data:`READY` seconds.
    """
    end = time.monotonic() + READY
    while True:
        alive = {Path(p.folder).name for p in processes.marked(mark, MARK) if p.kind == "executor"}
        if len(alive) == 2 and alive == _registered(session):
            return
        if time.monotonic() > end:
            raise NotReady(f"executors {sorted(alive)}, Spark knows {_registered(session)}")
        time.sleep(0.1)


def _registered(session):
    scala = session.sparkContext._jsc.sc()
    known = scala.statusStore().executorList(True)
    return {known.apply(i).id() for i in range(known.size())} - {"driver"}


# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COUNT = int(os.environ.get("HEADGATE_TEST_KEPT_FAULTS", "15"))
KEYS = 97
#: Rows of a batch.
BATCH = 200
#: Seconds for one run with the executor that replaces a lost one.
LIMIT = 300


@dataclass(frozen=True)
class Plan:
    """One job and its fault.

    Attributes:
        producers: partitions of the input.
        partitions: of the result.
        batches: of each producer.
        width: characters of a row; pages of narrow ones are few, and lie beside their indexes.
        shuffle: True if a shuffle by Spark follows, so that consumers have no results of their own.
        role: the function in which the fault strikes.
        target: the process that is killed: that of the task, or one above it.
        task: the task that strikes, modulo the number of tasks.
        at: batch before which it strikes; beyond the last one it strikes at the end.
    """

    producers: int
    partitions: int
    batches: int
    width: int
    shuffle: bool
    role: str
    target: str
    task: int
    at: int

    @property
    def rows(self):
        """Number of rows."""
        return self.producers * self.batches * BATCH


def plan_of(number):
    choose = random.Random(number)
    batches = choose.randint(1, 12)
    return Plan(
        producers=choose.randint(1, 9),
        partitions=choose.choice((1, 2, 4, 12, 40)),
        batches=batches,
        width=choose.choice((1, 10, 500)),
        shuffle=choose.random() < 0.3,
        role=choose.choice(("map", "reduce")),
        # Each kind in turn, so that any count has a share of each.
        target=("worker", "executor", "daemon", "executor")[number % 4],
        task=choose.randrange(40),
        at=choose.randint(0, batches),
    )


def above(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(x for x in status.splitlines() if x.startswith("PPid")).split()[1])


def executor_id():
    """Return the id of this task's executor, after which Spark names its working directory.

    Parents do not tell: a worker whose daemon was killed serves other tasks.
    """
    return int(Path.cwd().name)


def process(target):
    """Return the id of a process of this task; that of the worker if its daemon is dead."""
    parent = os.getppid()
    if parent == 1:
        return os.getpid()
    return {"worker": os.getpid(), "daemon": parent, "executor": above(parent)}[target]


def note(folder, kind, *numbers):
    """Create a file whose name has the time and these numbers."""
    (folder / "-".join(map(str, (kind, time.monotonic_ns(), *numbers)))).touch()


def notes(folder, kind):
    """Return the numbers of the notes of a kind in the order of their times, which come first."""
    return sorted([int(x) for x in p.name.split("-")[1:]] for p in folder.glob(f"{kind}-*"))


def strike(folder, target):
    """Kill a process, in the first task that comes here."""
    try:
        (folder / "struck").open("x").close()
    except FileExistsError:
        return
    note(folder, "killed", executor_id())
    os.kill(process(target), signal.SIGKILL)
    # A worker outlives its daemon, and its task goes on. Without its executor it ends some time later.
    if target == "executor":
        time.sleep(60)


def function(plan, role, folder):
    """Return the function of a role: it yields its input, and strikes if it is its turn."""
    tasks = plan.producers if role == "map" else plan.partitions

    def work(batches):
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        is_mine = plan.role == role and number == plan.task % tasks
        for at, batch in enumerate(batches):
            if is_mine and at == plan.at:
                strike(folder, plan.target)
            yield batch
        if is_mine:
            strike(folder, plan.target)
        if role == "map":
            note(folder, "ended", number, executor_id())

    return work


def build(spark, plan, folder):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    rows = spark.range(0, plan.rows, 1, plan.producers).selectExpr(
        "id", f"id * 2654435761 % {KEYS} as k", f"lpad(id, {plan.width}, 'x') as s"
    )
    out = exchange(
        rows,
        by="k",
        map=function(plan, "map", folder),
        reduce=function(plan, "reduce", folder),
        map_schema=rows.schema,
        schema=rows.schema,
        num_partitions=plan.partitions,
        mode="kept",
    ).selectExpr("*", "spark_partition_id() as p")
    right = rows.repartition(plan.partitions, "k").selectExpr("*", "spark_partition_id() as p")
    return (out.repartition(3, "id") if plan.shuffle else out), right


def ran_needlessly(plan, folder):
    """Return the producers that ran again although their output was not lost.

    All whose output was lost may not run again: until the driver knows of the loss, executors of one
    host read each other's shuffle files.
    """
    ended = notes(folder, "ended")
    (killed,) = notes(folder, "killed") or [(0, 0)]
    first, again = {}, set()
    for when, task, executor in ended:
        if task in first:
            again.add(task)
        else:
            first[task] = when, executor
    there = {task: when for task, (when, executor) in first.items() if executor == killed[1]}
    if plan.target == "executor":
        # Workers whose executor is dead still run for a moment, so times say nothing.
        return again - there.keys()
    if plan.role == "map":
        # A producer whose function had ended may not have succeeded yet.
        return again - {task for task, when in there.items() if when < killed[0]}
    return again


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    mark, folder = uuid.uuid4().hex, tmp_path_factory.mktemp("kept")
    session = make_session(mark, folder)
    yield session, mark, folder
    session.stop()
    processes.kill_all(mark, MARK)


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("number", range(COUNT))
def test_a_fault_costs_what_it_hit_and_no_rows(stage, number):
    session, mark, parent = stage
    wait_ready(session, mark)
    folder, plan = parent / f"run-{number}", plan_of(number)
    folder.mkdir()
    out, right = build(session, plan, folder)
    found = sorted(map(tuple, out.collect()))
    assert found == sorted(map(tuple, right.collect())), plan
    assert (folder / "struck").exists() or plan.role == "reduce", plan
    assert not ran_needlessly(plan, folder), plan
    if plan.role == "reduce":
        assert last_stats().made_again == len(notes(folder, "ended")) - plan.producers, plan
    shutil.rmtree(folder)
