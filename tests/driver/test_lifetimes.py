"""The driver forgets an exchange once its plan is garbage in the JVM."""

from types import SimpleNamespace

import pytest

from headgate.spark.driver import plan_lifetimes
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.driver.plan_lifetimes import PlanLifetimes
from headgate.spark.tasks.start_host import HostAddress


class Jvm:
    """References to objects that are garbage when the test says so."""

    def __init__(self):
        self.dead, self.queued, self.polls = set(), [], 0
        self.java = SimpleNamespace(lang=SimpleNamespace(ref=self))

    def ReferenceQueue(self):  # noqa: N802 - Java's name
        return self

    def poll(self):
        self.polls += 1
        return self.queued.pop() if self.queued else None

    def WeakReference(self, part, queue):  # noqa: N802 - Java's name
        assert queue is self
        return SimpleNamespace(refersTo=lambda _: part in self.dead)

    def collect(self, *parts):
        self.dead.update(parts)
        self.queued += parts


@pytest.fixture
def jvm(monkeypatch):
    monkeypatch.setattr(plan_lifetimes, "_PERIOD", 0.0)
    return Jvm()


@pytest.fixture
def plans(jvm):
    return PlanLifetimes(SimpleNamespace(_jvm=jvm))


def test_what_is_garbage_is_told_of_once(plans, jvm):
    ended = []
    for part in range(300):
        plans.add(part, lambda part=part: ended.append(part))
    plans.look()
    assert ended == []
    jvm.collect(*range(0, 300, 2))
    plans.look()
    assert sorted(ended) == list(range(0, 300, 2))
    plans.look()
    assert (len(ended), len(plans)) == (150, 150)
    jvm.collect(*range(1, 300, 2))
    plans.look()
    assert len(plans) == 0
    polls = jvm.polls
    plans.look()
    assert jvm.polls == polls, "with nothing to watch the JVM is not asked"


def test_the_jvm_is_asked_every_few_seconds_only(plans, jvm, monkeypatch):
    monkeypatch.setattr(plan_lifetimes, "_PERIOD", 1000.0)
    plans.add(1, list)
    for _ in range(5):
        plans.look()
    assert jvm.polls == 1


def test_places_of_a_kept_exchange_are_forgotten():
    places, host = KeptHosts(), HostAddress("h", 4040, "ab" * 16)
    for exchange in ("a", "b"):
        places.add(exchange, 1, 7, host)
    places.forget("a")
    places.forget("never heard of")
    assert [fields["producers"] for fields in places.messages("a")] == [[]]
    assert [fields["producers"] for fields in places.messages("b")] == [[], [[1, 7, 0]]]
    assert set(places._served) == {"b"}
