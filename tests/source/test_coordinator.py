"""The coordinator of a source: after Flink's SourceCoordinatorTest."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.kit.coordinator import DEADLINE, Bench, ListSource, ListSplit, OnRequest
from tests.kit.leftovers import our_threads

from headgate.errors import ClosedError, OptionError, SourceError, StateVersionError
from headgate.source import SourceEvent
from headgate.source.coordination import CoordinatorThread

SPLITS = tuple(ListSplit(name) for name in "abcdef")


@pytest.fixture
def bench():
    bench = Bench(ListSource(SPLITS))
    yield bench
    bench.close()
    assert our_threads() == []


def requested(bench, *subtasks):
    for subtask in subtasks:
        bench.coordinator.request_split(subtask, f"host-{subtask}")
    bench.settle()


def raising(where):
    """Return an enumerator that fails in one of its methods."""

    def fail(self, *_, **__):
        raise LookupError(f"no {where}")

    return type(
        "Failing", (OnRequest,), {where: property(fail) if where == "total_splits" else fail}
    )


def test_nothing_is_created_before_start(bench):
    assert bench.source.enumerators == []
    assert our_threads() == []
    bench.started()
    assert bench.source.enumerator.calls == [("start",)]


def test_every_callback_runs_on_the_one_thread(bench):
    bench.started(0, 1)
    requested(bench, 0, 1)
    bench.coordinator.source_event(1, SourceEvent("hello", b"x"))
    bench.checkpoint(1)
    bench.coordinator.checkpoint_complete(1)
    bench.checkpoint(2)
    bench.coordinator.checkpoint_aborted(2)
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    bench.close()
    enumerator = bench.source.enumerator
    assert " ".join(call[0] for call in enumerator.calls) == (
        "start reader reader request request event snapshot complete snapshot aborted back reader close"
    )
    assert enumerator.threads == {"headgate-enumerators"}
    assert enumerator.calls[3] == ("request", 0, "host-0")


def test_several_coordinators_share_a_thread():
    thread = CoordinatorThread()
    benches = [Bench(ListSource(SPLITS[:n]), thread=thread).started(0) for n in (1, 2, 3)]
    assert our_threads() == ["headgate-enumerators"]
    for bench in benches:
        requested(bench, 0, 0)
    assert [b.assigned for b in benches] == [[(0, ("a",))], *[[(0, ("a",)), (0, ("b",))]] * 2]
    benches[0].coordinator.close()
    assert benches[0].source.enumerator.is_closed
    requested(benches[1], 0)
    assert benches[1].notes.told[-1] == ("no more", 0)
    assert not benches[1].source.enumerator.is_closed
    for bench in benches[1:]:
        bench.coordinator.close(DEADLINE)
    thread.close(DEADLINE)
    assert all(b.source.enumerator.is_closed for b in benches)
    assert our_threads() == []


def test_a_closed_coordinator_says_and_does_nothing(bench):
    bench.started(0, 1)
    requested(bench, 0)
    bench.coordinator.close(DEADLINE)
    assert bench.source.enumerator.is_closed
    told, calls = list(bench.notes.told), list(bench.source.enumerator.calls)
    context = bench.source.enumerator.context
    requested(bench, 0, 1)
    bench.coordinator.register_reader(1, "h")
    bench.coordinator.source_event(0, SourceEvent("late"))
    bench.coordinator.report_watermark(0, 5)
    bench.coordinator.splits_finished(0, ["a"])
    bench.coordinator.checkpoint_complete(1)
    context.run_in_coordinator_thread(lambda: 1 / 0)
    bench.in_thread(lambda: context.assign_split(SPLITS[0], 7))
    bench.settle()
    assert bench.notes.told == told
    assert bench.notes.errors == []
    assert bench.source.enumerator.calls == calls
    data, error = bench.checkpoint(1)
    assert data is None
    assert isinstance(error, ClosedError)
    bench.coordinator.close(DEADLINE)
    assert bench.source.enumerator.calls == calls


def test_close_waits_for_a_callback_and_names_it_when_it_does_not_end(caplog):
    at, go = threading.Event(), threading.Event()

    class Slow(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            at.set()
            go.wait(DEADLINE)

    bench = Bench(ListSource(SPLITS, enumerator=Slow)).started(0)
    bench.coordinator.request_split(0, None)
    assert at.wait(DEADLINE)
    assert bench.coordinator.callback_at_work == "handle_split_request"
    with caplog.at_level(logging.WARNING, "headgate.source"):
        bench.coordinator.close(timeout=0.01)
    assert "running: handle_split_request" in caplog.text
    go.set()
    bench.close()
    assert bench.source.enumerator.is_closed
    assert bench.notes.errors == []
    assert our_threads() == []


def test_an_enumerator_that_fails_in_close_is_logged(caplog):
    bench = Bench(ListSource(enumerator=raising("close"))).started()
    with caplog.at_level(logging.ERROR, "headgate.source"):
        bench.close()
    assert "no close" in caplog.text
    assert bench.notes.errors == []
    assert our_threads() == []


@pytest.mark.parametrize("parallelism", [0, -1])
def test_a_parallelism_is_positive(parallelism):
    with pytest.raises(OptionError, match=f"parallelism={parallelism} is less than 1"):
        Bench(ListSource(), parallelism)


@pytest.mark.parametrize("subtask", [-1, 2])
def test_a_reader_has_a_number_within_the_parallelism(bench, subtask):
    with pytest.raises(ValueError, match=f"reader {subtask} of 2 readers"):
        bench.coordinator.register_reader(subtask, "h")


def test_events_go_both_ways(bench):
    bench.started(0)
    bench.coordinator.source_event(0, SourceEvent("ping", b"\x00\xff"))
    bench.coordinator.source_event(1, SourceEvent("of a reader that is not there"))
    bench.settle()
    assert bench.notes.told == [("event", 0, "ping", b"\x00\xff")]


def test_spec_section_13_2_requests_of_readers_that_are_not_there_or_need_none_are_ignored(bench):
    bench.started(0)
    requested(bench, 1, *[0] * 9)
    assert [n for n in bench.notes.told if n[0] == "no more"] == [("no more", 0)]
    assert len([c for c in bench.source.enumerator.calls if c[0] == "request"]) == 7


def test_spec_13_05_splits_of_a_lost_reader_go_to_another(bench):
    bench.started(0, 1)
    requested(bench, 0, 0)
    bench.checkpoint(1)
    bench.coordinator.checkpoint_complete(1)
    requested(bench, 0, 0, 1)
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    assert bench.source.enumerator.calls[-2:] == [("back", ("c", "d"), 0), ("reader", 0)]
    requested(bench, 1, 1, 1, 1)
    assert [split for to, splits in bench.assigned if to == 1 for split in splits] == list("efcd")
    assert bench.notes.told[-1] == ("no more", 1)


def test_spec_section_13_2_splits_of_a_checkpoint_that_is_not_complete_go_back_too(bench):
    bench.started(0, 1)
    requested(bench, 0)
    bench.checkpoint(1)
    requested(bench, 0)
    bench.checkpoint(2)
    bench.coordinator.checkpoint_aborted(2)
    requested(bench, 0)
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    assert bench.source.enumerator.calls[-2] == ("back", ("a", "b", "c"), 0)


def test_spec_section_13_2_no_more_splits_is_forgotten_with_the_reader():
    bench = Bench(ListSource(SPLITS[:1])).started(0)
    requested(bench, 0, 0)
    bench.coordinator.register_reader(0, "new")
    requested(bench, 0, 0)
    assert bench.notes.told == [("assign", 0, ("a",)), ("no more", 0)] * 2
    bench.close()


def test_spec_section_13_2_a_reader_that_registers_again_was_lost_before(bench):
    bench.started(0)
    requested(bench, 0)
    bench.coordinator.register_reader(0, "elsewhere")
    bench.settle()
    assert bench.source.enumerator.calls[-2:] == [("back", ("a",), 0), ("reader", 0)]
    readers = bench.source.enumerator.context.registered_readers
    assert {n: r.location for n, r in readers.items()} == {0: "elsewhere"}


def test_the_account_of_finished_splits(bench):
    bench.started(0, 1)
    requested(bench, 0, 0, 1)
    assert bench.coordinator.total_splits == 3  # This enumerator's total.
    bench.coordinator.splits_finished(0, ["a"])
    bench.settle()
    assert bench.coordinator.finished_splits == 1
    bench.checkpoint(1)
    bench.coordinator.splits_finished(0, ["b"])
    bench.coordinator.splits_finished(1, ["c"])
    bench.settle()
    assert bench.coordinator.finished_splits == 3
    bench.coordinator.checkpoint_complete(1)
    requested(bench, 0)
    bench.coordinator.splits_finished(0, ["d"])
    bench.coordinator.register_reader(0, "again")  # It reads "d" again.
    bench.settle()
    assert bench.coordinator.finished_splits == 3
    bench.coordinator.splits_finished(0, ["d"])
    bench.settle()
    assert bench.coordinator.finished_splits == 4


def test_a_finished_split_that_is_given_back_is_not_finished(bench):
    bench.started(0)
    requested(bench, 0)
    bench.coordinator.splits_finished(0, ["a"])
    bench.settle()
    assert bench.coordinator.finished_splits == 1
    bench.coordinator.register_reader(0, "again")
    bench.settle()
    assert bench.coordinator.finished_splits == 0


def test_a_checkpoint_has_its_version_before_it_and_restores(bench):
    bench.started(0)
    requested(bench, 0, 0)
    data, error = bench.checkpoint(1)
    assert error is None
    assert data[:4] == b"\x00\x00\x00\x07"
    source = ListSource(())
    other = Bench(source).started(0, checkpoint=data)
    requested(other, 0, 0)
    assert other.assigned == [(0, ("c",)), (0, ("d",))]
    other.close()


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00", b"\x00\x00\x00\x09{}", b"\x00\x00\x00\x07nothing"]
)
def test_a_checkpoint_of_something_else_is_one_clear_error(data):
    bench = Bench(ListSource()).started(0, checkpoint=data)
    (error,) = bench.notes.errors
    assert isinstance(error, StateVersionError)
    bench.close()


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("__init__", "start"),
        ("start", "start"),
        ("add_reader", "add_reader"),
        ("handle_split_request", "handle_split_request"),
        ("handle_source_event", "handle_source_event"),
        ("add_splits_back", "add_splits_back"),
        ("snapshot_state", "snapshot_state"),
        ("notify_checkpoint_complete", "notify_checkpoint_complete"),
        ("notify_checkpoint_aborted", "notify_checkpoint_aborted"),
        ("total_splits", "start"),
    ],
)
def test_a_callback_that_fails_ends_the_job_once(where, named):
    bench = Bench(ListSource(SPLITS, enumerator=raising(where))).started(0)
    bench.coordinator.request_split(0, "h")
    bench.coordinator.source_event(0, SourceEvent("x"))
    data, error = bench.checkpoint(1)
    bench.coordinator.checkpoint_complete(1)
    bench.coordinator.checkpoint_aborted(2)
    bench.coordinator.register_reader(0, "again")
    bench.coordinator.register_reader(0, "h")
    bench.settle()
    (failure,) = bench.notes.errors
    assert isinstance(failure, SourceError)
    assert f"the enumerator of ListSource failed in {named}: LookupError: " in str(failure)
    assert failure.details == {"source": "ListSource", "callback": named}
    assert isinstance(failure.__cause__, LookupError)
    if named in {"start", "add_reader", "handle_split_request", "snapshot_state"}:
        assert (data, error) == (None, failure)
    else:
        assert error is None or error is failure
    bench.close()
    assert len(bench.notes.errors) == 1
    assert our_threads() == []


def test_an_error_of_headgate_keeps_its_facts():
    class Failing(OnRequest):
        def start(self):
            raise SourceError("no such folder", asked="/data", remedy="create it")

    bench = Bench(ListSource(enumerator=Failing)).started()
    (failure,) = bench.notes.errors
    assert "failed in start: no such folder" in failure.summary
    assert (failure.asked, failure.remedy) == ("/data", "create it")
    bench.close()


def test_a_split_that_cannot_be_written_is_assigned_to_nobody():
    class Unwritable(ListSplit):
        @property
        def split_id(self):
            raise OSError("unwritable")

    bench = Bench(ListSource([SPLITS[0], Unwritable("x")])).started(0)
    context = bench.source.enumerator.context
    bench.in_thread(lambda: context.assign_splits({0: bench.source.splits}))
    assert bench.assigned == []
    bench.close()


def test_checkpoints_that_wait_are_answered_when_all_ends():
    at, go = threading.Event(), threading.Event()

    class Slow(OnRequest):
        def start(self):
            at.set()
            go.wait(DEADLINE)

    bench = Bench(ListSource(enumerator=Slow))
    bench.coordinator.start()
    assert at.wait(DEADLINE)
    answers = []
    for number in (1, 2):
        bench.coordinator.checkpoint(number, lambda *answer: answers.append(answer))
    bench.coordinator.close(timeout=0)
    assert [(data, type(error)) for data, error in answers] == [(None, ClosedError)] * 2
    go.set()
    bench.close()
    assert len(answers) == 2
    assert our_threads() == []


def test_a_checkpoint_is_refused_once_the_thread_is_closed():
    bench = Bench(ListSource())
    bench.thread.close()
    bench.coordinator.start()
    data, error = bench.checkpoint(1)
    assert data is None
    assert isinstance(error, ClosedError)
