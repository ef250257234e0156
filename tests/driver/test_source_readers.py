"""Runs whose producers read a source: the assignment of splits, and their return after a loss."""

import pytest
from tests.driver.actors import PLACE, Theatre

from headgate.control.cause import CANCELLED, Cause
from headgate.errors import ProtocolError
from headgate.spark.driver.runs.readers import Readers

GONE = "Python worker exited unexpectedly (crashed)"


class Enumerator:
    """Records the calls."""

    name = "numbers"

    def __init__(self):
        self.heard = []
        self.total_splits = None

    def start(self):
        self.heard.append("start")

    def close(self):
        self.heard.append("close")

    def register(self, subtask, attempt, host):
        self.heard.append(("register", subtask, attempt, host))

    def lost(self, subtask):
        self.heard.append(("lost", subtask))

    def request(self, subtask, host):
        self.heard.append(("request", subtask, host))

    def finished(self, subtask, ids):
        self.heard.append(("finished", subtask, ids))

    def event(self, subtask, fields):
        self.heard.append(("event", subtask, fields["name"]))

    def watermark(self, subtask, ms):
        self.heard.append(("watermark", subtask, ms))


class Play(Theatre):
    """A consumer, and a run with a source."""

    def __init__(self):
        super().__init__()
        self.stage(1, 1)
        self.only = self.consumer(0)
        (self.run,) = self.submitted
        self.enumerator = Enumerator()
        self.run.readers = Readers(self.run, self.enumerator)

    def reader(self, partition, attempt=None, registered=False):
        connection = self.producer(self.run, partition, attempt=attempt)
        if self.last(connection).kind == "GO":
            self.say(connection, "READER", {"host": f"host-{partition}"}, self.run.number)
        if registered:
            self.say(connection, "REGISTERED", PLACE, self.run.number)
        return connection

    def give(self, connection, *ids):
        member = self.coordinator.members[connection]
        fields = {"version": 1, "splits": [[name, ""] for name in ids]}
        self.run.readers.tell(member.partition, member.attempt, "ASSIGN", fields)
        self.settle()

    def finish(self, connection, *ids):
        self.say(connection, "SPLITS_FINISHED", {"ids": list(ids)}, self.run.number)


@pytest.fixture
def play():
    return Play()


def test_what_readers_say_reaches_the_enumerator(play):
    reader = play.reader(1, attempt=70)
    number = play.run.number
    play.say(reader, "SPLIT_REQUEST", {"host": "h"}, number)
    play.say(reader, "WATERMARK", {"ms": -5}, number)
    play.say(reader, "SOURCE_EVENT", {"name": "hello", "payload": ""}, number)
    play.finish(reader, "a")
    assert play.enumerator.heard == [
        ("register", 1, 70, "host-1"),
        ("request", 1, "h"),
        ("watermark", 1, -5),
        ("event", 1, "hello"),
        ("finished", 1, ["a"]),
    ]


def test_a_reader_registers_once_and_first(play):
    reader = play.producer(play.run, 0)
    with pytest.raises(ProtocolError, match="unexpected SPLIT_REQUEST"):
        play.say(reader, "SPLIT_REQUEST", {"host": "h"}, play.run.number)
    play.say(reader, "READER", {"host": ""}, play.run.number)
    with pytest.raises(ProtocolError, match="unexpected READER"):
        play.say(reader, "READER", {"host": "h"}, play.run.number)


def test_a_producer_without_a_source_is_no_reader(play):
    play.run.readers = None
    with pytest.raises(ProtocolError, match="without a source"):
        play.reader(0)


def test_splits_are_counted_as_they_are_finished(play):
    first, second = play.reader(0), play.reader(1)
    assert play.run.reads_splits
    assert (play.run.splits_done, play.run.splits_total) == (0, None)
    play.give(first, "a", "b")
    play.give(second, "c")
    play.enumerator.total_splits = 3
    play.finish(first, "a")
    play.finish(second, "c")
    assert (play.run.splits_done, play.run.splits_total) == (2, 3)
    assert play.run.readers.unfinished(0) == ["b"]
    assert play.run.readers.unfinished(1) == play.run.readers.unfinished(7) == []


def test_a_reader_lost_before_it_registered_gives_its_splits_back_and_the_run_goes_on(play):
    other, reader = play.reader(0, registered=True), play.reader(1)
    play.give(reader, "a", "b")
    play.finish(reader, "a")
    play.hang_up(reader)
    assert play.enumerator.heard[-1] == ("lost", 1)
    play.verdict("FAILED", GONE)
    assert play.run.splits_done == 0
    again = play.reader(1, attempt=99, registered=True)
    assert play.kinds(again) == ["GO"]
    assert play.enumerator.heard[-1] == ("register", 1, 99, "host-1")
    for connection in (other, again):
        play.done(connection, play.run.number)
    play.job_ended(play.run, [0, 1])
    assert play.last(play.only).kind == "SEALED"
    assert play.last(play.only)["producers"] == 2


def test_a_lost_reader_that_spark_thinks_is_running_fails_the_run_by_name(play):
    reader = play.reader(1, attempt=70)
    play.give(reader, "a")
    play.hang_up(reader)
    play.verdict("RUNNING")
    said = play.last(play.only)
    assert said["code"] == "HG-3001"
    assert "reader 1 of source 'numbers' on host-1" in said["summary"]
    assert said["summary"].endswith("unfinished splits: a")


@pytest.mark.parametrize("status", ["FAILED", "KILLED", "", "RUNNING"])
def test_what_spark_says_of_a_lost_reader_does_not_matter_once_it_is_replaced(play, status):
    play.hang_up(play.reader(1))
    again = play.reader(1, registered=True)
    play.verdict(status)
    play.wait(10)
    assert not play.run.is_over
    play.done(again, play.run.number)
    play.job_ended(play.run, [1])
    assert play.last(play.only).kind == "SEALED"


def test_a_second_attempt_that_came_before_the_loss_takes_over(play):
    reader = play.reader(1)
    copy = play.reader(1)
    third = play.reader(1)
    assert play.kinds(copy) == play.kinds(third) == ["WAIT"]
    play.hang_up(copy)
    play.hang_up(reader)
    assert play.kinds(third) == ["WAIT", "GO"]
    play.say(third, "READER", {"host": "h"}, play.run.number)
    play.say(third, "REGISTERED", PLACE, play.run.number)
    assert play.last(play.only).kind == "PARTITION"


def test_what_was_meant_for_a_lost_attempt_does_not_reach_the_next_one(play):
    reader = play.reader(1, attempt=70)
    play.hang_up(reader)
    again = play.reader(1, attempt=71)
    play.run.readers.tell(1, 70, "ASSIGN", {"version": 1, "splits": [["a", ""]]})
    play.run.readers.tell(1, 70, "NO_MORE_SPLITS", {})
    play.run.readers.tell(1, 71, "ALIGN", {"ms": 3})
    play.run.readers.tell(5, 1, "NO_MORE_SPLITS", {})
    play.settle()
    assert play.kinds(again) == ["GO", "ALIGN"]
    assert play.run.readers.unfinished(1) == []


def test_a_reader_lost_before_it_said_anything_is_no_loss_to_the_enumerator(play):
    reader = play.producer(play.run, 1)
    play.hang_up(reader)
    assert play.enumerator.heard == []
    assert play.kinds(play.reader(1)) == ["GO"]


def test_a_reader_lost_after_it_registered_ends_the_epoch_by_name(play):
    reader = play.reader(1, attempt=70, registered=True)
    play.give(reader, "a", "b", "c")
    play.finish(reader, "b")
    play.hang_up(reader)
    play.verdict("FAILED", GONE)
    said = play.last(play.only)
    assert (said.kind, said["code"]) == ("EPOCH_ENDED", "HG-3001")
    assert said["summary"] == (
        "a reader is gone without a goodbye: reader 1 of source 'numbers' on host-1 "
        "(stage 50, task 70); unfinished splits: a, c"
    )


def test_the_end_of_the_job_does_not_hide_who_was_lost(play):
    reader = play.reader(1, attempt=70, registered=True)
    play.give(reader, "a")
    play.hang_up(reader)
    play.job_ended(play.run, error=Cause("HG-3001", "a producer is gone", text=GONE))
    assert not play.run.is_over
    play.verdict("FAILED", GONE)
    assert "reader 1 of source 'numbers' on host-1" in play.last(play.only)["summary"]


def test_a_job_that_gave_up_names_the_reader_whose_loss_nobody_made_good(play):
    play.hang_up(play.reader(0))
    play.done(play.reader(0, registered=True), play.run.number)
    reader = play.reader(1, attempt=70)
    play.give(reader, *(f"split {n}" for n in range(7)))
    play.hang_up(reader)
    play.job_ended(play.run, error=Cause("HG-3001", "a producer is gone", text=GONE))
    said = play.last(play.only)
    assert "reader 1 of source 'numbers' on host-1 (stage 50, task 70)" in said["summary"]
    assert said["summary"].endswith("split 3, split 4 and 2 more")
    assert said["text"] == GONE


def test_a_job_that_failed_for_another_reason_says_that(play):
    play.hang_up(play.reader(0))
    play.job_ended(play.run, error=Cause("HG-9001", "something else"))
    assert play.last(play.only)["summary"] == "something else"


def test_a_cancelled_job_is_no_loss(play):
    play.hang_up(play.reader(0))
    play.job_ended(play.run, error=CANCELLED)
    assert play.run.epochs.is_cancelled


def test_a_split_for_a_reader_that_has_ended_fails_the_run(play):
    reader = play.reader(1, attempt=70, registered=True)
    play.say(reader, "DONE", {"rows": 0, "bytes": 0, "pages": 0, "peak": 0}, play.run.number)
    play.run.readers.tell(1, 70, "NO_MORE_SPLITS", {})
    play.run.readers.tell(1, 70, "ASSIGN", {"version": 1, "splits": [["late", ""]]})
    play.settle()
    assert play.kinds(reader) == ["GO", "OK"]
    said = play.last(play.only)
    assert said["code"] == "HG-6003"
    assert "gave splits to reader 1, which had ended: unfinished splits: late" in said["summary"]


def test_nothing_is_said_after_the_end(play):
    reader = play.reader(0, attempt=70)
    play.run.cancel()
    play.settle()
    heard = len(play.enumerator.heard)
    play.say(reader, "SPLIT_REQUEST", {"host": "h"}, play.run.number)
    play.run.readers.tell(0, 70, "NO_MORE_SPLITS", {})
    play.settle()
    assert len(play.enumerator.heard) == heard
    assert play.kinds(reader) == ["GO", "ABORT"]
