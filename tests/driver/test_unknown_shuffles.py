"""A shuffle that is not known to write local files: its exchanges are left to Spark, or refused."""

from dataclasses import replace

import pytest
from benches.peer_program import COMET
from tests.kit.plans import CLUSTER, CONNECT, LOCAL, a_call, a_source, an_exchange, an_input, said

from headgate.spark.explained.explanation import Explanation
from headgate.spark.plan.decide import _not_built
from headgate.spark.plan.facts import Placement
from headgate.spark.plan.rules import choose
from headgate.spark.shuffle_files import manager_compares_rows, unknown_shuffle

MANAGER = "spark.shuffle.manager"
PLUGIN = "spark.shuffle.sort.io.plugin.class"
SORT = "org.apache.spark.shuffle.sort.SortShuffleManager"
CELEBORN = "org.apache.spark.shuffle.celeborn.SparkShuffleManager"
REMOTE = unknown_shuffle({MANAGER: CELEBORN})
#: Clusters and hosts with this shuffle.
REMOTE_CLUSTER, REMOTE_LOCAL, REMOTE_CONNECT = (
    replace(there, unknown_shuffle=REMOTE) for there in (CLUSTER, LOCAL, CONNECT)
)
#: As on a cluster with this shuffle, which compares no rows.
REMOTE_EXECUTORS = replace(REMOTE_CLUSTER, compares_rows=False)

SHORT = a_call()
MAPPED = a_call(an_input(has_map=True))
LISTED = replace(MAPPED, is_listed=True)
GROUPS = a_call(an_input(placement=Placement("key groups", ("user",))))
FUNCTION = a_call(an_input(has_map=True, placement=Placement("function", name="f")))
BROADCAST = a_call(an_input(placement=Placement("stays")), an_input(placement=Placement("whole")))


@pytest.mark.parametrize(
    ("confs", "compares_rows"),
    [
        ({}, True),
        ({MANAGER: "sort"}, True),
        ({MANAGER: "SORT"}, True),
        ({MANAGER: "Tungsten-Sort"}, True),
        ({MANAGER: SORT}, True),
        ({MANAGER: COMET[MANAGER]}, False),
        ({PLUGIN: "org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO"}, True),
        ({PLUGIN: "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO"}, True),
    ],
)
def test_shuffles_that_write_local_files_are_known(confs, compares_rows):
    assert unknown_shuffle(confs) is None
    assert manager_compares_rows(confs) == compares_rows


@pytest.mark.parametrize(
    ("confs", "remedy"),
    [
        ({MANAGER: CELEBORN}, f"{MANAGER}=sort"),
        ({MANAGER: "org.apache.spark.shuffle.RssShuffleManager"}, f"{MANAGER}=sort"),
        ({MANAGER: f"{SORT}2"}, f"{MANAGER}=sort"),
        ({MANAGER: ""}, f"{MANAGER}=sort"),
        (
            {PLUGIN: "com.example.Plugin"},
            f"{PLUGIN}=org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO",
        ),
    ],
)
def test_all_others_are_unknown(confs, remedy):
    unknown = unknown_shuffle(confs)
    ((name, value),) = confs.items()
    assert (unknown.setting, unknown.remedy) == (f"{name}={value}", remedy)


def test_an_unknown_manager_is_not_trusted_to_compare_rows():
    assert not manager_compares_rows({MANAGER: CELEBORN})


@pytest.mark.parametrize("there", [REMOTE_CLUSTER, REMOTE_LOCAL])
@pytest.mark.parametrize(
    "call", [MAPPED, GROUPS, FUNCTION, a_call(a_source()), a_call(an_input(has_combine=True))]
)
def test_exchanges_are_left_to_spark(call, there):
    plan = choose(call, there)
    assert (plan.mode, plan.impossible) == ("repartition", "")
    assert plan.why.startswith(f"{MANAGER}={CELEBORN} is not known to write a file")
    (other,) = plan.rejected
    assert (other.mode, other.why) == ("kept", plan.why)
    assert choose(call, replace(there, unknown_shuffle=None)).mode == "kept"


@pytest.mark.parametrize("there", [REMOTE_CLUSTER, REMOTE_LOCAL])
@pytest.mark.parametrize(
    ("call", "mode"),
    [
        (SHORT, "repartition"),
        (replace(MAPPED, mode="spark"), "repartition"),
        (BROADCAST, "broadcast"),
    ],
)
def test_what_keeps_no_file_is_planned_as_ever(call, mode, there):
    sessions = (there, replace(there, unknown_shuffle=None))
    plan, plan_of_sparks_own = (choose(call, session) for session in sessions)
    assert (plan.mode, plan.why, plan.impossible) == (mode, plan_of_sparks_own.why, "")


def test_a_kept_exchange_whose_pages_travel_through_sparks_shuffle_has_no_files():
    plan = choose(replace(MAPPED, mode="kept"), REMOTE_CONNECT)
    assert (plan.mode, plan.impossible) == ("kept", "")


@pytest.mark.parametrize(
    ("call", "there", "remedy"),
    [
        (replace(MAPPED, mode="kept"), REMOTE_CLUSTER, f'mode="auto" · {MANAGER}=sort'),
        (replace(MAPPED, mode="kept"), REMOTE_LOCAL, f'mode="auto" · {MANAGER}=sort'),
        (replace(SHORT, mode="kept"), REMOTE_EXECUTORS, f'mode="auto" · {MANAGER}=sort'),
        (LISTED, REMOTE_CLUSTER, f"{MANAGER}=sort"),
        (replace(FUNCTION, is_listed=True), REMOTE_EXECUTORS, f"{MANAGER}=sort"),
    ],
)
def test_what_would_be_kept_is_refused(call, there, remedy):
    plan = choose(call, there)
    assert plan.mode == "kept"
    assert plan.impossible.startswith(f"{MANAGER}={CELEBORN} is not known to write a file")
    assert plan.remedy == remedy
    error = _not_built(plan)
    lines = str(error).splitlines()
    assert lines[0] == "[HG-2201] rows cannot be kept with this shuffle"
    assert any(line.startswith("  asked   ") for line in lines)
    assert f"  do one  {remedy}" in lines
    assert lines[-1] == "  more    python -m headgate explain HG-2201"
    assert CELEBORN in str(error)


def test_rows_placed_by_their_order_are_refused_for_that_where_no_shuffle_compares_them():
    for mode in ("auto", "spark"):
        plan = choose(replace(FUNCTION, mode=mode), REMOTE_EXECUTORS)
        assert "by may place rows by their order" in plan.impossible
        assert plan.remedy == "by=columns · Spark 4.1 or newer"


def test_explain_gives_the_reason():
    plan = an_exchange(an_input(has_map=True), there=REMOTE_CLUSTER)
    explained = said(plan)
    assert explained.through == ""
    assert "lost executors" not in [check.name for check in explained.checks]
    assert [back.mode for back in explained.falls_back] == []
    text = " ".join(str(Explanation(1, (explained,), (), {})).split())
    assert f"{MANAGER}={CELEBORN} is not known to write a file for each task" in text
