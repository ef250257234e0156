"""The checks of rows and errors can fail: wrong rows, and errors that blame another cause."""

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.soak.chaos.figures import line, summary, table
from tests.soak.chaos.job import _reducer, wrong_rows
from tests.soak.chaos.judge import misfit, said
from tests.soak.chaos.plan import KEYS, KINDS, make_plan

PLAN = replace(make_plan(0), producers=2, batches=5, batch_rows=100, width=2)
HOME = {key: key % PLAN.consumers for key in range(KEYS)}


def rows(ids):
    keys = [i * 2_654_435_761 % KEYS for i in ids]
    columns = {"id": ids, "k": keys, "s": [str(i) * 2 for i in ids], "p": [HOME[k] for k in keys]}
    types = {"id": pa.int64(), "k": pa.int64(), "s": pa.string(), "p": pa.int32()}
    return pa.table(columns, schema=pa.schema(list(types.items())))


def test_all_rows_in_any_order_are_right():
    assert not wrong_rows(PLAN, rows(list(reversed(range(PLAN.rows)))), HOME)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (list(range(1, 1000)), "1 rows are missing"),
        ([*range(1000), 7], "1 are duplicates"),
        ([*range(1, 1000), 7], "1 rows are missing, 1 are duplicates"),
        ([*range(1000), 1000], "never sent"),
        ([], "1000 rows are missing"),
    ],
)
def test_lost_doubled_and_invented_rows_are_seen(ids, words):
    assert words in wrong_rows(PLAN, rows(ids), HOME)


@pytest.mark.parametrize("column", ["k", "s", "p"])
def test_a_changed_value_and_a_moved_row_are_seen(column):
    right = rows(list(range(PLAN.rows)))
    values = right[column].to_pylist()
    values[5] = "other" if column == "s" else values[5] + 1
    spoiled = right.set_column(right.column_names.index(column), column, pa.array(values))
    assert wrong_rows(PLAN, spoiled, HOME)


def test_a_key_that_moved_as_a_whole_is_seen():
    moved = rows(list(range(PLAN.rows))).set_column(3, "p", pa.array([0] * PLAN.rows, pa.int32()))
    assert "wrong partitions" in wrong_rows(PLAN, moved, HOME)


@pytest.mark.parametrize("manner", ["none", "early", "late"])
@pytest.mark.parametrize(
    ("mutation", "wrong"), [(None, ""), ("drop", "100 rows"), ("twice", "100")]
)
def test_a_consumer_spoils_its_rows_only_when_it_is_asked_to(manner, mutation, wrong):
    reducer = _reducer(manner, 0, ("", 0), mutation) or iter
    batches = rows(list(range(PLAN.rows))).to_batches(max_chunksize=100)
    found = wrong_rows(PLAN, pa.Table.from_batches(reducer(iter(batches))), HOME)
    assert wrong in found
    assert bool(found) is bool(mutation)


LOST = "[HG-3001] a producer is gone without a goodbye: producer of partition 1"
SILENT = "[HG-3001] no heartbeat for 10 s from h: a consumer is gone without a goodbye"
BROKEN = "[HG-3001] lost producer 127.0.0.1:9: the process closed the connection"
CHANGED = "[HG-3005] integrity check failed on 127.0.0.1:9: checksum"
HUNG_UP = "[HG-3008] the coordinator on the driver cannot be reached"


@pytest.mark.parametrize(
    ("kind", "victim", "text", "fits"),
    [
        ("kill producer", "producer", LOST, True),
        ("kill producer", "producer", SILENT, False),
        ("kill consumer", "consumer", LOST, False),
        ("stop", "consumer", SILENT, True),
        ("kill executor", "executor", LOST, True),
        ("kill daemon", "daemon", HUNG_UP, False),
        ("kill daemon", "daemon", "Job aborted: Python worker exited unexpectedly", False),
        ("pause", "producer", LOST, False),
        ("cut data", "producer", BROKEN, True),
        ("cut data", "producer", CHANGED, False),
        ("flip data", "producer", CHANGED, True),
        ("flip data", "producer", BROKEN, False),
        ("cut control", "producer", HUNG_UP, True),
        ("cut control", "producer", LOST, True),
        ("flip control", "consumer", HUNG_UP, True),
        ("flip control", "consumer", SILENT, False),
        ("none", "producer", LOST, False),
    ],
)
def test_an_error_fits_its_fault_or_is_wrong(kind, victim, text, fits):
    plan = replace(PLAN, kind=kind, victim=victim)
    error = said(f"Job aborted due to stage failure\nheadgate.errors.Some: {text}\n  do one  x")
    assert (misfit(plan, error) == "") is fits


def test_only_what_stands_before_the_drivers_own_stack_counts():
    assert not said(f"Job aborted\n\nDriver stacktrace: {LOST}").code


def test_a_seed_is_always_the_same_run_and_all_kinds_are_among_the_first_dozen():
    plans = [make_plan(seed) for seed in range(12)]
    assert plans == [make_plan(seed) for seed in range(12)]
    assert {plan.kind for plan in plans} == set(KINDS)


def test_a_stop_for_good_is_one_of_twenty_runs():
    kinds = [make_plan(seed).kind for seed in range(500)]
    assert kinds.count("stop") >= 25


def test_the_figures_count_and_spread():
    results = [
        result("rows", None, 2.0),
        result("rows", 0.5, 3.0),
        result("error", 0.1, 1.0),
        {"seed": 4, "kind": "session", "outcome": "lost", "detail": "gone"},
    ]
    found = summary(results)["all"]
    assert (found["runs"], found["rows"], found["recovered"], found["lost"]) == (4, 2, 1, 1)
    assert found["detection_s"] == {"p50": 0.1, "p99": 0.5, "max": 0.5}
    assert found["recovery_s"]["max"] == 3.0
    assert found["codes"] == {"HG-3001": 1}
    assert len(table(results)) == 4
    assert all(str(r["seed"]) in line(r) for r in results)


def result(outcome, detection, verdict):
    return {
        "seed": 3,
        "job": "a job",
        "kind": "kill producer",
        "fault": "kill producer, at 5 ms",
        "victim": "worker 1",
        "outcome": outcome,
        "detail": "[HG-3001] lost" if outcome == "error" else "",
        "fault_s": 0.1,
        "detection_s": detection,
        "verdict_s": verdict,
        "seconds": verdict,
        "disturbed": detection is not None,
        "blames": "",
        "epochs": 0,
        "causes": [],
    }
