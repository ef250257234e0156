"""The way between workers and the coordinator: late, doubled, cut in flight, damaged."""

import random
import time
from types import SimpleNamespace

import pytest
from actors import PLACE, TOTALS, Theatre
from outcomes import outcome_of, rounds, wait_for, wait_for_executors
from tests.data_plane.proxy import Damage, Proxy

from headgate.errors import ProtocolError
from headgate.spark import exchange, last_stats
from headgate.spark.driver import application
from headgate.spark.wire.cause import Cause

#: What may come of a connection that breaks: each names the connection, or the task behind it.
ALLOWED = {"rows", "lost", "HG-3001", "HG-3002", "HG-3004", "HG-3008", "HG-6002"}


@pytest.fixture(autouse=True)
def all_slots(request):
    """Every test begins with all slots, also after a lost executor."""
    if "spark" in request.fixturenames:
        wait_for_executors(request.getfixturevalue("spark"))


def said_twice(theatre, connection, kind, fields, run):
    """Say a message twice; the second time the coordinator may refuse it and hang up."""
    theatre.say(connection, kind, fields, run)
    try:
        theatre.say(connection, kind, fields, run)
    except ProtocolError:
        theatre.hang_up(connection)


def test_what_is_said_twice_counts_once_in_a_run_that_goes_well():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(index) for index in range(2)]
    (run,) = theatre.submitted
    producers = [theatre.producer(run, number) for number in range(2)]
    for producer in producers:
        said_twice(theatre, producer, "REGISTERED", PLACE, run.number)
        said_twice(theatre, producer, "PROGRESS", {"rows": 1, "bytes": 1}, run.number)
        said_twice(theatre, producer, "DONE", TOTALS, run.number)
        theatre.hang_up(producer)
        theatre.hang_up(producer)
    theatre.job_ended(run, [0, 1])
    assert [theatre.kinds(consumer).count("SEALED") for consumer in consumers] == [1, 1]
    for consumer in consumers:
        said_twice(theatre, consumer, "DONE", TOTALS, run.number)
        theatre.hang_up(consumer)
        theatre.hang_up(consumer)
    theatre.stage(1, 2, completed=2, status="COMPLETE")
    assert theatre.ended == [(run, None)]
    assert len(theatre.submitted) == 1
    assert not theatre.cancelled
    assert not theatre.asked
    theatre.wait(1.0)
    assert not theatre.coordinator.runs
    assert not theatre.coordinator.members


def test_what_is_said_twice_counts_once_in_a_run_that_fails():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(index) for index in range(2)]
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    said_twice(theatre, producer, "REGISTERED", PLACE, run.number)
    cause = Cause("HG-6001", "map raised ValueError: x", text="its traceback")
    said_twice(theatre, producer, "FAILED", cause.fields(), run.number)
    later = Cause("HG-6001", "a late one")
    for consumer in consumers:
        said_twice(theatre, consumer, "FAILED", later.fields(), run.number)
    theatre.job_ended(run, error=Cause("HG-6002", "the producer job failed"))
    aborts = [m for c in consumers for m in theatre.sent[c] if m.kind == "ABORT"]
    assert {message["summary"] for message in aborts} == {cause.summary}
    assert len(aborts) == 2
    assert [(r, c.summary) for r, c in theatre.ended] == [(run, cause.summary)]


def test_a_verdict_that_comes_late_or_twice_changes_nothing():
    theatre = Theatre()
    theatre.stage(1, 2)
    first, _ = (theatre.consumer(index) for index in range(2))
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.hang_up(producer)
    theatre.asked *= 3
    theatre.fail(first, "HG-6001", run.number, "reduce raised ValueError: x")
    while theatre.asked:
        theatre.verdict("FAILED", "exited unexpectedly")
    assert [cause.code for _, cause in theatre.ended] == ["HG-6001"]
    assert theatre.kinds(first).count("ABORT") <= 1


class Late(Proxy):
    """Passes everything on, some time later."""

    seconds = 0.15

    def _pass(self, source, sink, direction):
        time.sleep(self.seconds)
        return super()._pass(source, sink, direction)


@pytest.fixture
def between(spark, monkeypatch):
    """Return a function that puts a proxy between the next exchange's workers and the coordinator."""
    opened, owner = [], application.of(spark.sparkContext)

    def between(kind=Proxy, damage=None):
        target = SimpleNamespace(host=owner.host, port=owner._server.port)
        proxy = kind(target, damage)
        opened.append(proxy)
        monkeypatch.setattr(owner, "port", proxy._listener.getsockname()[1])
        return proxy

    yield between
    for proxy in opened:
        proxy.close()


@pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True, scope="session")
def test_a_coordinator_whose_answers_are_late(spark, numbers, between):
    proxy = between(Late)
    assert outcome_of(exchange(numbers, by="k", num_partitions=2)) == "rows"
    assert min(proxy.passed) > 1000


@pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True, scope="session")
@pytest.mark.parametrize("turn", range(rounds(3, 200)))
@pytest.mark.timeout(180)
def test_a_connection_that_breaks_anywhere(spark, numbers, between, turn):
    seed = 3100 + turn
    dice = random.Random(seed)
    direction = dice.randrange(2)
    damage = Damage(
        direction, dice.randrange(2_500), ["cut", "reset", "flip"][turn % 3], dice.randrange(8)
    )
    proxy = between(damage=damage)
    result = exchange(
        numbers, by="k", num_partitions=2, consumer_timeout="20s", heartbeat_timeout="3s"
    )
    started = time.monotonic()
    outcome = outcome_of(result)
    print(f"seed {seed}: {damage} came to {outcome} in {time.monotonic() - started:.1f} s")
    assert outcome in ALLOWED
    assert wait_for(lambda: last_stats().state != "running", 20)
    assert proxy.passed[damage.direction] > damage.offset, "the damage was not done"
