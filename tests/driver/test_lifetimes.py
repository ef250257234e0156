"""The driver forgets an exchange once its plan is garbage in the JVM and its last run is over."""

from types import SimpleNamespace

import pytest
from tests.driver.actors import EXCHANGE, OTHER, TOTALS, Theatre

from headgate.errors import ProtocolError
from headgate.spark.driver import lifetimes
from headgate.spark.driver.kept.places import KeptPlaces
from headgate.spark.driver.lifetimes import PlanLifetimes
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
    monkeypatch.setattr(lifetimes, "_PERIOD", 0.0)
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
    monkeypatch.setattr(lifetimes, "_PERIOD", 1000.0)
    plans.add(1, list)
    for _ in range(5):
        plans.look()
    assert jvm.polls == 1


def test_an_exchange_goes_once_its_last_run_is_over():
    theatre = Theatre(partitions=1)
    theatre.stage(1, 1)
    consumer = theatre.consumer(0)
    (run,) = theatre.submitted
    theatre.coordinator.indeterminate.add(EXCHANGE)
    theatre.coordinator.withdraw(EXCHANGE)
    theatre.wait(5.0)
    assert theatre.withdrawn == []
    theatre.job_ended(run, [])
    theatre.done(consumer, run.number)
    theatre.wait(5.0)
    theatre.wait(5.0)
    assert theatre.withdrawn == [EXCHANGE]
    coordinator = theatre.coordinator
    assert set(coordinator.exchanges) == {OTHER}
    assert not coordinator.indeterminate._exchanges
    assert not coordinator.indeterminate._yielded
    with pytest.raises(ProtocolError, match="exchange that is gone"):
        theatre.consumer(0)
    theatre.wait(5.0)
    assert theatre.withdrawn == [EXCHANGE]


def test_causes_of_an_exchange_go_with_it_and_crowd_out_no_other_ones():
    theatre = Theatre(partitions=1, slots=500)
    theatre.fail(theatre.consumer(0, stage=1), "HG-6001")
    other = theatre.consumer(0, stage=1, exchange=OTHER)
    theatre.wait(1.1)
    theatre.coordinator._refuse((OTHER, 1), theatre.coordinator.broke(OTHER, "x", ValueError("y")))
    for stage in range(2, 1500):
        theatre.coordinator.refuse([(EXCHANGE, stage)])
    assert theatre.last(theatre.consumer(0, stage=1, exchange=OTHER)).kind == "ABORT"
    assert len(theatre.coordinator._failed) <= 200
    theatre.say(other, "STOPPED", TOTALS, exchange=OTHER)
    theatre.hang_up(other)
    for exchange in (EXCHANGE, OTHER):
        theatre.coordinator.withdraw(exchange)
    for connection in list(theatre.coordinator.members):
        theatre.hang_up(connection)
    theatre.job_ended(theatre.submitted[0], [])
    theatre.wait(70.0)
    theatre.wait(70.0)
    assert set(theatre.withdrawn) == {EXCHANGE, OTHER}
    assert not theatre.coordinator._failed


def test_places_of_a_kept_exchange_are_forgotten():
    places, host = KeptPlaces(), HostAddress("h", 4040, "ab" * 16)
    for exchange in ("a", "b"):
        places.add(exchange, 1, 7, host)
    places.forget("a")
    places.forget("never heard of")
    assert [message["producers"] for message in places.messages("a")] == [[]]
    assert [message["producers"] for message in places.messages("b")] == [[], [[1, 7, 0]]]
    assert set(places._placed) == {"b"}
