"""The sentences of ``explain()`` about exchanges in a row."""

from dataclasses import replace

import pytest
from tests.kit.plans import CONNECT, LOCAL, TABLE, a_source, an_exchange, an_input, said

from headgate.spark.explained.explanation import Explanation
from headgate.spark.explained.fields import Hop
from headgate.spark.explained.hops import hops_of
from headgate.spark.explained.plan_search import PlannedExchange
from headgate.spark.explained.rendering import WIDTH
from headgate.spark.plan.facts import Followed
from headgate.spark.plan.rules import choose

MIB = 1 << 20
FIRST, SECOND = "a1b2" + 26 * "0", "c3d4" + 26 * "0"
FOLLOWS = an_input(follows=Followed(FIRST, 7, 64 * MIB, ("where", "select")))


def test_what_follows_is_kept_and_read_without_a_conversion():
    explained = said(an_exchange(FOLLOWS, has_reduce=True, there=LOCAL))
    assert (explained.mode, explained.why.partition(",")[0]) == (
        "kept",
        "the tasks of the exchange before have the rows in Python",
    )
    assert [copied.step for copied in explained.copies] == ["pages", "result"]
    assert (explained.inputs[0].producers.number, explained.inputs[0].follows) == (7, FIRST)
    assert "the consumers of exchange a1b2, in the same tasks" in explained.inputs[0].producers.why
    assert "64m of the exchanges whose rows it sends" in explained.memory.why
    assert explained.memory.total == 2 * 128 * MIB
    assert explained.faster == ()
    # The same call without an exchange before it.
    assert said(an_exchange(an_input(), has_reduce=True, there=LOCAL)).mode == "repartition"


def test_a_client_of_spark_connect_would_not_see_the_exchange_before():
    there = replace(CONNECT, shares_files=True)
    alone = an_exchange(replace(FOLLOWS, follows=None), has_reduce=True, there=there)
    (back,) = said(an_exchange(FOLLOWS, has_reduce=True, there=LOCAL)).falls_back
    assert (back.mode, back.why) == (alone.mode, choose(alone.call, alone.session).why)


APART = an_input(has_map=True, why_apart="its plan has Join")
KEPT, MOVED = an_exchange(an_input(has_map=True), name=FIRST), an_exchange(name=FIRST)


@pytest.mark.parametrize(
    ("plan", "fed_by", "hop"),
    [
        (
            an_exchange(FOLLOWS, has_reduce=True),
            (),
            Hop(FIRST, "", "", "in one task, with where and select"),
        ),
        (an_exchange(a_source()), (), Hop("files", "", "", "read by the workers")),
        (an_exchange(an_input(has_map=True)), (), Hop("DataFrame", "", "into Python", "")),
        (an_exchange(), (), Hop("DataFrame", "", "", "no function of Python gets the rows")),
        (an_exchange(APART), (KEPT,), Hop(FIRST, "", "into the JVM and back", "its plan has Join")),
        (an_exchange(APART), (MOVED,), Hop(FIRST, "", "into Python", "its plan has Join")),
        (an_exchange(), (KEPT,), Hop(FIRST, "", "into the JVM", "")),
    ],
)
def test_the_way_of_rows_to_an_exchange(plan, fed_by, hop):
    plan = replace(plan, name=SECOND)
    before = [PlannedExchange(first, (TABLE,), ((),)) for first in fed_by]
    exchange = PlannedExchange(plan, (None,), (tuple(first.name for first in fed_by),))
    assert hops_of([*before, exchange], [SECOND])[-2] == replace(hop, to=SECOND)


def test_the_way_to_the_result():
    for plan, crosses in ((KEPT, "into the JVM"), (MOVED, "")):
        hop = hops_of([PlannedExchange(plan, (TABLE,), ((),))], [FIRST])[-1]
        assert (hop.origin, hop.to, hop.crosses) == (FIRST, "result", crosses)


def test_the_chain_is_drawn_above_its_exchanges():
    exchanges = (said(an_exchange(name=FIRST)), said(an_exchange(FOLLOWS, name=SECOND)))
    hops = (
        Hop("<b>.parquet", FIRST, "", "read by the workers"),
        Hop(FIRST, SECOND, "into the JVM and back", "a reason " * 20),
        Hop(SECOND, "result", "into the JVM", "x"),
    )
    lines = str(Explanation(1, exchanges, hops, {})).splitlines()
    assert lines[0] == "headgate chain: rows cross between the JVM and Python 3 times"
    assert lines[1].split() == ["<b>.parquet", "-->", "a1b2", "read", "by", "the", "workers"]
    assert lines[2].startswith("  a1b2 ==> c3d4         into the JVM and back: a reason")
    assert max(map(len, lines)) <= WIDTH
    assert "&lt;b&gt;.parquet --&gt; a1b2" in Explanation(1, exchanges, hops, {})._repr_html_()
    # One exchange is no chain.
    assert "chain" not in str(Explanation(1, exchanges[:1], hops[:1], {})).splitlines()[0]
