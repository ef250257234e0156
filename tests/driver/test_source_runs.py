"""The enumerator of a run, on its own thread, and its messages to readers. No sockets, no Spark."""

import queue
import threading

import pytest
from tests.driver.source_actors import CLOSED, GiveOnRequest, GreetingEnumerator, Part, Parts
from tests.driver.test_source_readers import Play

from headgate.source import SourceEvent, WatermarkStrategy
from headgate.source.coordination import CoordinatorThread
from headgate.spark.driver.runs.readers import Readers
from headgate.spark.driver.scheduler.source_runs import SourceRun
from headgate.spark.tasks.task import SourcePlan
from headgate.spark.wire.messages import MAX_BYTES
from headgate.spark.wire.source_messages import assigned, event_fields, event_of


class Staged(Play):
    """A run with a real enumerator, whose messages arrive when the test delivers them."""

    def __init__(self, source, watermarks=None):
        super().__init__()
        self.thread = CoordinatorThread()
        self.posted = queue.SimpleQueue()
        plan = SourcePlan(source, source.name, 3, watermarks)
        run = SourceRun(plan, self.run, self.thread, self.posted.put)
        self.run.readers = Readers(self.run, run)
        self.run.readers.start()

    def think(self):
        """Wait until the enumerators' thread has run all of its actions."""
        done = threading.Event()
        self.thread.execute(done.set)
        assert done.wait(10)

    def deliver(self):
        """Deliver the messages of enumerators."""
        self.think()
        while not self.posted.empty():
            self.posted.get()()
        self.settle()

    def request(self, connection):
        self.say(connection, "SPLIT_REQUEST", {"host": "h"}, self.run.number)

    def given(self, connection):
        messages = [m for m in self.sent[connection] if m.kind == "ASSIGN"]
        return [name for m in messages for name, _ in assigned(m["splits"])]


def enumerators():
    """Return the threads of enumerators. An application of another test may have one."""
    return {t.ident for t in threading.enumerate() if t.name.startswith("headgate-enumerators")}


@pytest.fixture
def staged():
    CLOSED.clear()
    made = []
    before = enumerators()

    def stage(*args, **kwargs):
        made.append(Staged(*args, **kwargs))
        return made[-1]

    yield stage
    for one in made:
        one.run.readers.close()
        one.thread.close()
    assert enumerators() == before
    assert len(CLOSED) == len(made)


def test_a_reader_gets_what_it_asks_for(staged):
    play = staged(Parts(2))
    reader = play.reader(1)
    for _ in range(3):
        play.request(reader)
        play.deliver()
    assert play.given(reader) == ["part 0", "part 1"]
    assert play.kinds(reader) == ["GO", "ASSIGN", "ASSIGN", "NO_MORE_SPLITS"]
    assert assigned(play.sent[reader][1]["splits"]) == [("part 0", b'{"number":0}')]
    assert play.run.splits_total == 2


def test_the_splits_of_a_lost_reader_go_to_whoever_asks_next(staged):
    play = staged(Parts(2))
    reader, other = play.reader(1, attempt=70), play.reader(2)
    play.request(reader)
    play.deliver()
    play.hang_up(reader)
    play.request(other)
    play.deliver()
    assert play.given(reader) == play.given(other) == ["part 0"]


def test_a_split_on_its_way_to_a_lost_attempt_does_not_reach_the_next_one(staged):
    play = staged(Parts(1))
    reader = play.reader(1, attempt=70)
    play.request(reader)
    play.think()
    play.hang_up(reader)
    again = play.reader(1, attempt=71)
    play.deliver()
    assert play.kinds(again) == ["GO"]
    play.request(again)
    play.deliver()
    assert play.kinds(again) == ["GO", "ASSIGN"]
    assert play.given(again) == ["part 0"]


def test_events_go_both_ways(staged):
    play = staged(Parts(1, enumerator=GreetingEnumerator))
    reader = play.reader(2)
    hello = SourceEvent("hello", bytes(range(256)) + b"2")
    play.say(reader, "SOURCE_EVENT", event_fields("parts", hello), play.run.number)
    play.deliver()
    said = play.last(reader)
    assert said.kind == "SOURCE_EVENT"
    assert event_of(said.fields) == SourceEvent("welcome", b"\x002")


def test_readers_are_told_how_far_they_may_go(staged):
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment(
        "group", 5, update_interval=0.01
    )
    play = staged(Parts(1), strategy)
    reader = play.reader(0)
    play.say(reader, "WATERMARK", {"ms": 100}, play.run.number)
    while "ALIGN" not in play.kinds(reader):
        play.deliver()
    assert play.last(reader)["ms"] == 105


class LargeSplits(GiveOnRequest):
    """Assigns a split that no message can hold, and ignores the error."""

    def handle_split_request(self, subtask_id, requester_hostname):
        try:
            self.context.assign_split(Part("x" * (MAX_BYTES + 1)), subtask_id)
        except Exception:  # noqa: BLE001 - as some do
            self.context.signal_no_more_splits(subtask_id)


def test_a_split_that_fits_no_message_fails_the_run_whoever_catches_it(staged):
    play = staged(Parts(1, enumerator=LargeSplits))
    reader = play.reader(0)
    play.request(reader)
    play.deliver()
    said = play.last(play.only)
    assert (said.kind, said["code"]) == ("ABORT", "HG-6003")
    assert "source 'parts' sends" in said["summary"]
    assert "NO_MORE_SPLITS" not in play.kinds(reader)


class Failing(GiveOnRequest):
    """Fails when a reader registers."""

    def add_reader(self, subtask_id):
        raise LookupError(f"nobody knows reader {subtask_id}")


def test_a_failure_of_the_enumerator_is_the_cause_with_its_traceback(staged):
    play = staged(Parts(1, enumerator=Failing))
    play.reader(2)
    play.deliver()
    said = play.last(play.only)
    assert said["code"] == "HG-6003"
    assert said["summary"].startswith("the enumerator of parts failed in add_reader: LookupError")
    assert 'raise LookupError(f"nobody knows' in said["text"]
    assert said["where"] == "enumerator of source 'parts' on the driver"


def test_a_closed_enumerator_says_nothing(staged):
    play = staged(Parts(3))
    reader = play.reader(0)
    play.deliver()
    play.run.cancel()
    play.settle()
    play.run.readers.close()
    play.request(reader)
    play.deliver()
    assert play.kinds(reader) == ["GO", "ABORT"]
