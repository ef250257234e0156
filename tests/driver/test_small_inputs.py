"""Inputs with broadcast="auto": the limit, what is measured, and what explain() says of it."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.kit.plans import a_call, an_exchange, an_input, said

from headgate.errors import OptionError
from headgate.spark.plan.facts import Placement
from headgate.spark.plan.sizes import Measured, broadcast_limit, check_broadcast_bytes
from headgate.spark.tasks.function_task import FunctionTask
from headgate.spark.tasks.measure import MeasureTask, run

SCHEMA = pa.schema([("n", pa.int64())])
ADAPTIVE = "spark.sql.adaptive.autoBroadcastJoinThreshold"
ESTIMATED = "spark.sql.autoBroadcastJoinThreshold"


@pytest.mark.parametrize(
    ("confs", "option", "limit", "origin"),
    [
        ({}, None, 10 << 20, ESTIMATED),
        ({ESTIMATED: "20MB"}, None, 20 << 20, f"{ESTIMATED}=20MB"),
        ({ESTIMATED: "10485760b", ADAPTIVE: "2MB"}, None, 2 << 20, f"{ADAPTIVE}=2MB"),
        ({ESTIMATED: "10485760b", ADAPTIVE: "-1"}, None, 0, f"{ADAPTIVE}=-1"),
        ({ESTIMATED: "-1"}, None, 0, f"{ESTIMATED}=-1"),
        ({ESTIMATED: "-1"}, "3k", 3 << 10, "argument"),
    ],
)
def test_the_limit_is_the_option_or_sparks(confs, option, limit, origin):
    session = SimpleNamespace(conf=confs)
    options = a_call(an_input(), options={"broadcast_bytes": option}).options
    assert broadcast_limit(session, options) == (limit, origin)


def test_a_limit_without_a_measured_input_is_refused():
    options = a_call(an_input(), options={"broadcast_bytes": "3k"}).options
    with pytest.raises(OptionError, match="broadcast_bytes has no effect"):
        check_broadcast_bytes(options, [None, None])
    check_broadcast_bytes(options, [None, Measured(1, 3 << 10, "argument")])
    check_broadcast_bytes(a_call(an_input()).options, [None])


def test_a_task_measures_what_its_functions_return_and_stops_above_the_limit():
    rows_taken, closed = [], []

    def doubled(batches):
        try:
            for batch in batches:
                rows_taken.append(batch.num_rows)
                yield batch
                yield batch
        finally:
            closed.append(True)

    task = FunctionTask("map", doubled, SCHEMA, SCHEMA, "map_schema")
    rows = [pa.record_batch({"n": [0] * 10}, SCHEMA)] * 5
    assert measured_by(MeasureTask(task, 10_000), rows) == 5 * 2 * 80
    assert rows_taken == [10] * 5
    assert measured_by(MeasureTask(task, 200), rows) == 240
    assert rows_taken == [10] * 7
    assert closed == [True, True]
    assert measured_by(MeasureTask(task, 200), []) == 0


def measured_by(task, rows):
    (batch,) = run(task, iter(rows))
    (size,) = batch["bytes"].to_pylist()
    return size


@pytest.mark.parametrize(
    ("measured", "kind", "placed"),
    [
        (
            Measured(1234, 2048, "argument"),
            "whole",
            "sent to each call of reduce, as 1,234 bytes were measured, of at most 2k (argument)",
        ),
        (
            Measured(2049, 2048, "argument"),
            "hash",
            "one partition, as 2,049 bytes or more were measured, above 2k (argument)",
        ),
        (
            Measured(None, 0, f"{ADAPTIVE}=-1"),
            "hash",
            f"one partition, as nothing is broadcast by its size ({ADAPTIVE}=-1)",
        ),
    ],
)
def test_explain_says_why_an_input_is_sent_whole_or_is_not(measured, kind, placed):
    assert measured.is_small == (kind == "whole")
    other = an_input(placement=Placement("stays" if measured.is_small else "hash", ("k",)))
    small = an_input(placement=Placement(kind, ("k",)), measured=measured)
    inputs = said(an_exchange(other, small, is_listed=True)).inputs
    assert inputs[1].placed.endswith(placed)
    assert "measured" not in inputs[0].placed
