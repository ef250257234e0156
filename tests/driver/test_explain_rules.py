"""Which way an exchange goes, and when the same call goes another one."""

from dataclasses import replace

import pytest
from tests.driver.explain_kit import CLUSTER, CONNECT, LOCAL, a_source, an_exchange, an_input, said

from headgate.spark.explained.planned import Placement
from headgate.spark.plan.rules import Asked, There, choose, why_spark_reads

SHORT = Asked("auto", "default", "[k]", is_shortest=True)
MAPPED = Asked("auto", "default", "[k]", has_map=True)
#: A function places the rows, maybe by their order.
TURN = replace(MAPPED, is_by_order=True)
OLD = There(shares_files=False, is_one_process=False, compares_rows=False)


def kinds(choice):
    return choice.mode, [other.mode for other in choice.others]


@pytest.mark.parametrize(
    ("asked", "there", "mode", "others"),
    [
        (SHORT, CLUSTER, "repartition", ["kept"]),
        (SHORT, CONNECT, "repartition", ["kept"]),
        (MAPPED, LOCAL, "kept", ["repartition"]),
        (MAPPED, CLUSTER, "kept", ["repartition"]),
        (MAPPED, CONNECT, "repartition", ["kept"]),
        (MAPPED, replace(CONNECT, shares_files=True), "kept", ["repartition"]),
        (replace(TURN, spark_places=True), OLD, "repartition", ["kept"]),
        (TURN, CLUSTER, "kept", ["repartition"]),
        (MAPPED, OLD, "kept", ["repartition"]),
        (replace(SHORT, is_listed=True), CLUSTER, "kept", ["repartition"]),
        (replace(SHORT, mode="kept"), CLUSTER, "kept", []),
        (replace(MAPPED, mode="spark"), CLUSTER, "repartition", []),
        (replace(TURN, mode="spark", spark_places=True), OLD, "repartition", []),
    ],
)
def test_the_way_and_the_ways_not_taken(asked, there, mode, others):
    found = choose(asked, there)
    assert kinds(found) == (mode, others)
    assert found.why
    assert all(other.why for other in found.others)
    assert not found.impossible


@pytest.mark.parametrize(
    ("asked", "there", "remedy"),
    [
        (TURN, OLD, "by=columns · Spark 4.1 or newer"),
        (replace(TURN, mode="kept"), OLD, "by=columns · Spark 4.1 or newer"),
        (replace(TURN, mode="spark"), OLD, "by=columns · Spark 4.1 or newer"),
        (TURN, replace(OLD, on_connect=True), "by=columns · Spark 4.1 or newer"),
        (replace(TURN, is_listed=True), OLD, "by=columns · Spark 4.1 or newer"),
        (
            replace(TURN, mode="kept", spark_places=True),
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
    asked = replace(SHORT, mode="kept", mode_from="spark.headgate.mode")
    assert choose(asked, CLUSTER).why == 'mode="kept" (spark.headgate.mode)'


@pytest.mark.parametrize(
    ("asked", "there", "named", "why"),
    [
        (MAPPED, CLUSTER, {}, ""),
        (MAPPED, CONNECT, {}, "a client of Spark Connect"),
        (SHORT, CLUSTER, {}, "no function gets its rows"),
        (SHORT, CLUSTER, {"has_reduce": True}, ""),
        (replace(SHORT, mode="kept"), CLUSTER, {}, ""),
        (
            SHORT,
            CLUSTER,
            {"has_reduce": True, "has_computed_keys": True},
            "Spark computes its keys",
        ),
    ],
)
def test_why_spark_reads_files_that_workers_could_read(asked, there, named, why):
    flags = {"has_reduce": False, "has_computed_keys": False, **named}
    assert why_spark_reads(asked, there, **flags).startswith(why)
    assert bool(why) == bool(why_spark_reads(asked, there, **flags))


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
