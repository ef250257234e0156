"""iterate() until nothing changes, in parts, and with updates that name a key twice."""

import logging
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import PYSPARK
from tests.kit.waiting import wait_until

from headgate.spark import iterate, last_stats
from headgate.spark.plan import iterate_in_parts

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.skipif(
    PYSPARK < (4, 1), reason="needs Spark 4.1, which reads unions partition by partition"
)
NODES = 13


def onward(nodes):
    """Each node that changed sends a message to the next one, unless it is the last."""
    ids = pc.add(nodes.read_all()["id"], 1)
    return pa.table({"id": ids}).filter(pc.less(pc.field("id"), NODES))


def visited(nodes, messages):
    """Return the nodes that got messages, with the number of all that they got so far."""
    counts = messages.read_all().group_by("id").aggregate([("id", "count")])
    both = nodes.read_all().join(counts, "id", join_type="inner")
    return pa.table({"id": both["id"], "n": pc.add(both["n"], both["id_count"])})


def walked(spark, **more):
    """In each round each node that changed in the last one adds 1 to the next node."""
    nodes = spark.range(0, NODES, 1, 3).selectExpr("id", "0L AS n")
    job = {"by": "id", "send": onward, "update": visited, "message_schema": "id long"}
    job |= {"delta": True, "num_partitions": 3}
    return iterate(nodes, **{**job, **more})


def as_dict(df):
    rows = df.collect()
    assert len({row.id for row in rows}) == len(rows) == NODES
    return {row.id: row.n for row in rows}


def after(rounds):
    """A node is visited in each round until the nodes before it are at rest."""
    return {node: min(rounds, node) for node in range(NODES)}


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "headgate.spark")
    return lambda: [r.getMessage() for r in caplog.records if "still changed" in r.getMessage()]


def reported():
    wait_until(lambda: last_stats().state == "done", "all tasks have reported", 10)


@pytest.mark.parametrize("first", [1, 4])
def test_rounds_run_until_nothing_changes(spark, monkeypatch, warnings, first):
    monkeypatch.setattr(iterate_in_parts, "_FIRST", first)
    parts = []
    checkpoint = iterate_in_parts._checkpoint

    def counted(df):
        parts.append(last_stats() if parts else None)
        return checkpoint(df)

    monkeypatch.setattr(iterate_in_parts, "_checkpoint", counted)
    out = walked(spark, rounds=1000, until="unchanged")
    assert out.columns == ["id", "n"]
    assert as_dict(out) == after(NODES)
    assert warnings() == []
    reported()
    whole = last_stats()
    assert (whole.consumers, whole.consumers_total) == (3 * len(parts), 3 * len(parts))
    for before in parts[1:]:
        assert (before.name, before.number) == (whole.name, whole.number), "one run of all rounds"
        assert before.state == "running", "more rounds may come"
        assert 0 < before.rows < whole.rows or not before.rows


@pytest.mark.parametrize("more", [{"until": "unchanged"}, {}])
def test_too_few_rounds_are_said(spark, monkeypatch, warnings, more):
    monkeypatch.setattr(iterate_in_parts, "_FIRST", 2)
    out = walked(spark, rounds=5, **more)
    assert as_dict(out) == after(5)
    reported()
    (line,) = warnings()
    assert "more rounds" in line


def test_enough_rounds_are_not_warned_of(spark, warnings):
    assert as_dict(walked(spark, rounds=NODES)) == after(NODES)
    reported()
    assert warnings() == []


@pytest.fixture
def checkpoints(spark, tmp_path):
    """The folder for the checkpoints of the session, while the test runs."""
    context = spark.sparkContext
    before = context._jsc.sc().getCheckpointDir()
    context.setCheckpointDir(str(tmp_path))
    yield tmp_path
    getattr(context._jsc.sc(), "checkpointDir_$eq")(before)


def test_more_rounds_than_a_plan_takes_run_in_parts(spark, monkeypatch):
    monkeypatch.setattr(iterate_in_parts, "PART", 3)
    assert as_dict(walked(spark, rounds=7)) == after(7)


def test_the_state_between_parts_is_in_the_folder_for_checkpoints(spark, monkeypatch, checkpoints):
    monkeypatch.setattr(iterate_in_parts, "PART", 1)
    assert as_dict(walked(spark, rounds=2)) == after(2)
    assert list(checkpoints.rglob("part-*"))


def test_rounds_in_parts_without_delta(spark, monkeypatch):
    monkeypatch.setattr(iterate_in_parts, "PART", 2)

    def added(nodes, messages):
        rows, count = nodes.read_all(), messages.read_all().num_rows
        return rows.set_column(1, "n", pc.add(rows["n"], 1 if count == rows.num_rows else 100))

    out = walked(
        spark, delta=False, rounds=5, send=lambda n: n.read_all().select(["id"]), update=added
    )
    assert as_dict(out) == dict.fromkeys(range(NODES), 5)


@pytest.mark.parametrize("times", [2, 3])
def test_a_key_that_an_update_returns_twice_is_refused(spark, times):
    def again(nodes, messages):
        rows = visited(nodes, messages)
        return pa.concat_tables([rows] * times)

    with pytest.raises(PySparkException, match=rf"HG-4003\] update returned {times} rows with id="):
        walked(spark, rounds=2, update=again).collect()
