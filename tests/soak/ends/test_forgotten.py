"""The driver forgets exchanges whose DataFrames are garbage, and knows which stages are of which exchange."""

import gc
import sys
import threading
import time
from dataclasses import replace

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.faults.patience import wait_until

from headgate.spark import exchange
from headgate.spark.driver import application, kept_watch, lifetimes
from headgate.spark.driver.application import Application
from headgate.spark.driver.scheduler import task_sets
from headgate.spark.tasks.control import Control

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MANY = 60


def same(batches):
    yield from batches


class Tables:
    """The numbers of exchanges in the driver's tables, beyond those that earlier tests left for ever.

    Spark keeps the plan of each `toLocalIterator()` until the session ends.
    """

    def __init__(self, spark, owner):
        self.spark, self.owner = spark, owner
        self._left, alike, end = [], 0, time.monotonic() + 60
        while alike < 4:
            assert time.monotonic() < end, "the tables do not settle"
            time.sleep(0.4)
            self.collect_garbage()
            keys = self._keys()
            alike = alike + 1 if keys == self._left else 0
            self._left = keys

    def _keys(self):
        owner, coordinator = self.owner, self.owner._server.coordinator
        drawn = [key for watch in kept_watch._watches.values() for key in watch._progress]
        exchanges = (owner._plans, owner._keys, owner._kept._places, coordinator.exchanges)
        watched = range(len(owner._lifetimes))
        return [set(table) for table in (*exchanges, coordinator.formation.facts, watched, drawn)]

    def now(self):
        """Return the numbers of plans, keys, places and exchanges that this test added."""
        return self._added()[:4]

    def progress(self):
        """Return the number of kept exchanges whose progress is watched."""
        return self._added()[-1]

    def _added(self):
        return [len(keys - left) for keys, left in zip(self._keys(), self._left, strict=True)]

    def collect_garbage(self):
        # Spark's listeners hold the last plan until the next action.
        self.spark.range(1).count()
        gc.collect()
        self.spark.sparkContext._jvm.System.gc()

    def wait_for(self, condition, what):
        wait_until(lambda: self.collect_garbage() or condition(), what, 60)

    def become_empty(self):
        self.wait_for(lambda: not any(self._added()), "empty tables")


@pytest.fixture
def owner(spark, monkeypatch):
    monkeypatch.setattr(lifetimes, "_PERIOD", 0.1)
    return application.of(spark.sparkContext)


@pytest.fixture
def tables(spark, owner):
    return Tables(spark, owner)


def pipelined(df, **options):
    return exchange(df, by="k", map=same, schema=df.schema, mode="pipelined", **options)


def test_dozens_of_exchanges_leave_the_drivers_tables_empty(numbers, tables):
    captured = b"x" * 100_000

    def holding(batches):
        assert captured
        yield from batches

    made = [
        exchange(numbers, by="k", map=holding, schema=numbers.schema, mode="pipelined")
        for _ in range(MANY)
    ]
    assert tables.now() == [MANY, MANY, 0, MANY]
    for out in made[:3]:
        assert out.count() == 20_000
    last = made[-1].where("k < 10").groupBy("k").count()
    del made, out
    tables.wait_for(lambda: tables.now() == [1, 1, 0, 1], "all but one are forgotten")
    assert sorted(last.collect()) == [(k, 200) for k in range(10)]
    assert tables.now() == [1, 1, 0, 1]
    del last
    tables.become_empty()


@pytest.mark.parametrize("how", ["rdd", "cache", "view"])
def test_what_was_made_of_a_result_keeps_its_exchange(spark, numbers, tables, how):
    out = pipelined(numbers, num_partitions=2)
    if how == "rdd":
        made = out.rdd.map(lambda row: row.id)
        count = made.count
    elif how == "cache":
        made = out.cache()
        count = made.count
    else:
        out.createOrReplaceTempView("made")
        count = spark.table("made").count
    del out
    for _ in range(3):
        tables.collect_garbage()
    assert count() == 20_000
    assert tables.now() == [1, 1, 0, 1]
    if how == "cache":
        made.unpersist(blocking=True)
    spark.catalog.dropTempView("made")
    made = count = None
    tables.become_empty()


def test_an_exchange_of_an_exchange_is_forgotten_with_it(numbers, tables):
    out = pipelined(pipelined(numbers, num_partitions=2), num_partitions=1)
    tables.collect_garbage()
    assert tables.now() == [2, 2, 0, 2]
    del out
    tables.become_empty()


def test_kept_exchanges_are_forgotten_too(numbers, tables, monkeypatch):
    monkeypatch.setattr("headgate.spark.kept_way.shares_files", lambda session: False)
    job = {
        "by": "k",
        "progress": "log",
        "map": same,
        "schema": numbers.schema,
        "map_schema": numbers.schema,
    }
    made = [exchange(numbers, reduce=same, mode="kept", **job) for _ in range(20)]
    both = {"reduce": lambda one, other: same(one), "schema": numbers.schema, "mode": "kept"}
    made.append(exchange([numbers, numbers], "k", progress="log", **both))
    assert tables.now() == [0, 22, 22, 22]
    assert tables.progress() >= 21
    del made
    tables.become_empty()


@pytest.mark.parametrize("how", ["collect", "rdd", "coalesce", "union", "join", "cache", "take"])
def test_spark_tells_that_the_stages_of_consumers_read_their_exchange(
    spark, numbers, owner, monkeypatch, how
):
    """Also of actions without SQL, of stages that several exchanges share, and of cached results."""
    refused = []
    refuse = owner._server.coordinator.refuse
    monkeypatch.setattr(
        owner._server.coordinator, "refuse", lambda keys: refused.extend(keys) or refuse(keys)
    )
    out = pipelined(numbers, num_partitions=2)
    match how:
        case "collect":
            assert len(out.collect()) == 20_000
        case "rdd":
            assert out.rdd.map(lambda row: row.id).count() == 20_000
        case "coalesce":
            assert out.coalesce(1).count() == 20_000
        case "union":
            assert out.union(pipelined(numbers, num_partitions=1)).count() == 40_000
        case "join":
            other = numbers.groupBy("k").agg(F.count("*").alias("n"))
            assert out.join(other, "k").count() == 20_000
        case "cache":
            cached = out.cache()
            assert [cached.count(), cached.count()] == [20_000, 20_000]
            cached.unpersist(blocking=True)
        case "take":
            assert len(out.take(5)) == 5
    assert refused == []


def test_the_plan_estimates_its_size_as_before(spark, numbers, owner):
    """Spark broadcasts a table by this number, which a plain RDD would not have."""
    plan = pipelined(numbers, num_partitions=2)._jdf.queryExecution().optimizedPlan()
    assert int(str(plan.stats().sizeInBytes())) < 1 << 20


@pytest.fixture
def place(owner, monkeypatch):
    """Return a function that returns the place of the newest exchange, with its secret."""
    registered, register = [], Application.register

    def note(self, place, *rest):
        registered.append(place)
        register(self, place, *rest)

    monkeypatch.setattr(Application, "register", note)
    return lambda: replace(registered[-1], timeout=10.0)


def test_who_has_the_secret_of_an_exchange_has_no_power_over_another_job(
    spark, numbers, owner, place, tmp_path, caplog
):
    out = pipelined(numbers, num_partitions=1)

    def wait(batches):
        (tmp_path / "runs").touch()
        end = time.monotonic() + 60
        while not (tmp_path / "go").exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield from batches

    rows = []
    job = spark.range(0, 10, 1, 1).mapInArrow(wait, "id long")
    action = threading.Thread(target=lambda: rows.extend(job.collect()))
    action.start()
    wait_until((tmp_path / "runs").exists, "the job of somebody else runs", 60)
    (stage,) = spark.sparkContext.statusTracker().getActiveStageIds()
    (attempt,) = task_sets.running_attempts(spark.sparkContext, stage)
    fields = {"stage": stage, "partition": 0, "attempt": attempt, "index": 0}
    coordinator = owner._server.coordinator
    with Control(place()) as liar:
        liar.send("CONSUMER", fields)
        message = liar.receive()
        assert (message.kind, message["code"]) == ("ABORT", "HG-3004")
        (connection,) = coordinator.members
        owner._server.post(lambda: coordinator.silent(connection, "h", 10.0))
        wait_until(lambda: f"task {attempt} of stage {stage} is not killed" in caplog.text, "it")
    with Control(place()) as liar:
        liar.bind(1, 0)
        liar.send("PRODUCER", {name: fields[name] for name in ("stage", "partition", "attempt")})
        assert liar.receive().kind == "ABORT"
        (connection,) = coordinator.members
        caplog.clear()
        owner._server.post(lambda: coordinator.silent(connection, "h", 10.0))
        wait_until(lambda: f"task {attempt} of stage {stage} is not killed" in caplog.text, "it")
    (tmp_path / "go").touch()
    action.join(60)
    assert [row.id for row in rows] == list(range(10))
    failed = spark.sparkContext.statusTracker().getStageInfo(stage).numFailedTasks
    assert failed == 0, "somebody else's task was killed"
    assert out.count() == 20_000
