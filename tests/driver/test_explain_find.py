"""The exchanges in a plan of Spark Connect, whose client has its nodes."""

import pytest
from pyspark.sql.connect.plan import Join, Limit, Range, SetOperation
from tests.kit.plans import CONNECT, an_exchange, an_input

from headgate.errors import OptionError
from headgate.spark.explained import recent_plans
from headgate.spark.explained.explain import explain
from headgate.spark.explained.plan_search import Finder

MAPPED = an_input(has_map=True)


class Session:
    """A session of Spark Connect, of which no server is asked."""

    version = "4.3.0"


class Frame:
    """A DataFrame of Spark Connect."""

    sparkSession = Session()  # noqa: N815 - the name in PySpark

    def __init__(self, plan):
        self._plan = plan


# The client is known by the module of its classes.
Session.__module__ = Frame.__module__ = "pyspark.sql.connect.tests"


@pytest.fixture
def named(monkeypatch):
    """Return a function that makes a plan that is the result of an exchange."""
    monkeypatch.setattr(recent_plans, "_newest", {})

    def make(name, *, is_known=True):
        plan = Range(0, 3, 1)
        recent_plans._named[plan] = name
        if is_known:
            recent_plans._newest[name] = an_exchange(MAPPED, there=CONNECT, name=name)
        return plan

    return make


def names(plan):
    return [one.plan.name for one in Finder(Session()).of(Frame(plan))]


def test_exchanges_are_found_below_all_kinds_of_nodes_and_once(named):
    first, second = named("aa"), named("bb")
    both = Join(Limit(first, 2), SetOperation(second, first, "union"), "id", "inner")
    assert names(both) == ["aa", "bb"]
    assert names(Limit(Range(0, 3, 1), 2)) == []


def test_a_plan_that_has_itself_in_it_often_is_walked_once(named, monkeypatch):
    plan, visited = named("aa"), []
    for _ in range(40):
        plan = SetOperation(plan, plan, "union")
    monkeypatch.setattr(
        "headgate.spark.explained.plan_search.name_of",
        lambda node, context: visited.append(node) or recent_plans.name_of(node, context),
    )
    assert names(plan) == ["aa"]
    assert len(visited) <= 2 * 41


def test_what_a_client_cannot_know_is_said(named, monkeypatch):
    explanation = explain(Frame(named("aa")))
    (found,) = explanation.exchanges
    assert found.inputs[0].producers.source == "unknown"
    assert {one.name for one in found.checks} == {"slots", "versions"}
    assert all(one.ok is None for one in found.checks)


def test_an_exchange_that_is_forgotten_is_named_as_such(named):
    with pytest.raises(OptionError, match="call exchange\\(\\) again"):
        explain(Frame(named("cc", is_known=False)))
    with pytest.raises(OptionError, match="a plan without exchange"):
        explain(Frame(Range(0, 3, 1)))
