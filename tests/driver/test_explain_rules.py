"""Which way an exchange goes, and when the same call goes another one."""

from dataclasses import replace

import pytest
from tests.kit.plans import (
    CLUSTER,
    CONNECT,
    LOCAL,
    a_call,
    a_source,
    an_exchange,
    an_input,
    said,
)

from headgate.spark.plan.facts import Placement
from headgate.spark.plan.read_auto.decide import why_spark_reads
from headgate.spark.plan.rules import choose

SHORT = a_call()
MAPPED = a_call(an_input(has_map=True))
#: A function places the rows, maybe by their order.
FUNCTION = a_call(an_input(has_map=True, placement=Placement("function", name="f")))
#: They are placed in turn, as Spark can do too.
TURN = a_call(an_input(has_map=True, placement=Placement("turn", by_rows=False)))
COMBINED = a_call(an_input(has_combine=True))
BROADCAST = a_call(an_input(placement=Placement("stays")), an_input(placement=Placement("whole")))
OLD = replace(CLUSTER, compares_rows=False)


def kinds(plan):
    return plan.mode, [other.mode for other in plan.rejected]


@pytest.mark.parametrize(
    ("asked", "there", "mode", "others"),
    [
        (SHORT, CLUSTER, "repartition", ["kept"]),
        (SHORT, CONNECT, "repartition", ["kept"]),
        (COMBINED, LOCAL, "kept", ["repartition"]),
        (COMBINED, CONNECT, "repartition", ["kept"]),
        (BROADCAST, CLUSTER, "broadcast", []),
        (BROADCAST, OLD, "broadcast", []),
        (MAPPED, LOCAL, "kept", ["repartition"]),
        (MAPPED, CLUSTER, "kept", ["repartition"]),
        (MAPPED, CONNECT, "repartition", ["kept"]),
        (MAPPED, replace(CONNECT, shares_files=True), "kept", ["repartition"]),
        (TURN, OLD, "repartition", ["kept"]),
        (FUNCTION, CLUSTER, "kept", ["repartition"]),
        (MAPPED, OLD, "kept", ["repartition"]),
        (replace(SHORT, is_listed=True), CLUSTER, "kept", ["repartition"]),
        (replace(SHORT, mode="kept"), CLUSTER, "kept", []),
        (replace(MAPPED, mode="spark"), CLUSTER, "repartition", []),
        (replace(TURN, mode="spark"), OLD, "repartition", []),
    ],
)
def test_the_way_and_the_ways_not_taken(asked, there, mode, others):
    found = choose(asked, there)
    assert kinds(found) == (mode, others)
    assert found.why
    assert all(other.why for other in found.rejected)
    assert not found.impossible


@pytest.mark.parametrize(
    ("asked", "there", "remedy"),
    [
        (FUNCTION, OLD, "by=columns · Spark 4.1 or newer"),
        (replace(FUNCTION, mode="kept"), OLD, "by=columns · Spark 4.1 or newer"),
        (replace(FUNCTION, mode="spark"), OLD, "by=columns · Spark 4.1 or newer"),
        (FUNCTION, replace(OLD, on_connect=True), "by=columns · Spark 4.1 or newer"),
        (replace(FUNCTION, is_listed=True), OLD, "by=columns · Spark 4.1 or newer"),
        (
            replace(TURN, mode="kept"),
            OLD,
            'by=columns · mode="spark" · Spark 4.1 or newer',
        ),
    ],
)
def test_rows_that_an_old_spark_might_place_twice_are_refused(asked, there, remedy):
    found = choose(asked, there)
    assert "by may place rows by their order" in found.impossible
    assert found.remedy == remedy


def test_where_the_mode_comes_from_is_said():
    call = a_call(confs={"spark.headgate.mode": "kept"})
    assert choose(call, CLUSTER).why == 'mode="kept" (spark.headgate.mode)'


@pytest.mark.parametrize(
    ("call", "there", "why"),
    [
        (MAPPED, CLUSTER, ""),
        (MAPPED, CONNECT, "a client of Spark Connect"),
        (SHORT, CLUSTER, "no function gets its rows"),
        (replace(SHORT, has_reduce=True), CLUSTER, ""),
        (replace(SHORT, mode="kept"), CLUSTER, ""),
        (
            a_call(an_input(has_computed_keys=True), has_reduce=True),
            CLUSTER,
            "Spark computes its keys",
        ),
    ],
)
def test_why_spark_reads_files_that_workers_could_read(call, there, why):
    reason = why_spark_reads(call, call.inputs[0], on_connect=there.on_connect)
    assert reason.startswith(why)
    assert bool(why) == bool(reason)


def falls(facts):
    return {(back.when.split(",")[0], back.mode) for back in said(facts).falls_back}


def test_a_kept_exchange_falls_back_on_connect():
    assert falls(an_exchange(an_input(has_map=True))) == {
        ("the session is one of Spark Connect", "repartition")
    }


def test_what_spark_moves_falls_back_nowhere():
    assert falls(an_exchange()) == set()


def test_a_kept_exchange_in_one_process_falls_back_with_executors_of_an_old_spark():
    turn = an_input(has_map=True, placement=Placement("turn", by_rows=False))
    found = falls(an_exchange(turn, there=LOCAL))
    assert ("the application has executors", "repartition") in found
    for other in (an_input(has_map=True), an_input(placement=Placement("function"))):
        facts = an_exchange(other, there=LOCAL)
        assert all(when != "the application has executors" for when, _ in falls(facts))


def test_a_mode_that_the_caller_asks_for_never_falls_back():
    for mode in ("kept", "spark"):
        assert falls(an_exchange(a_source(), options={"mode": mode})) == set()
