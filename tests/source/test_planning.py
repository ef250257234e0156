"""Consecutive plans of splits, and the reading of exactly these splits."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.coordinator import (
    DEADLINE,
    ListReader,
    ListSource,
    ListSplit,
    OnRequest,
)
from tests.kit.leftovers import our_threads

from headgate.errors import NotBuiltError, OptionError, SourceError, StateVersionError
from headgate.source import (
    HybridSource,
    NumberSequenceSource,
    SourceEvent,
    plan_splits,
    read_splits,
)

SPLITS = tuple(ListSplit(name, 0, 3) for name in "abcde")


def names(planned):
    return "".join(split_id for split_id, _ in planned.splits)


class Discovering(OnRequest):
    """Looks for splits periodically, for the first time after a minute."""

    delay, period = 60.0, 60.0

    def __init__(self, context, splits, *, is_bounded):
        super().__init__(context, (), is_bounded=is_bounded)
        self.found = [*splits]
        self.looks = 0

    def start(self):
        self.context.call_async(self.look, self.take, self.delay, self.period)

    def look(self):
        self.looks += 1
        return self.found

    def take(self, found, error):
        assert error is None
        self.splits += found
        while self.splits and self.waiting:
            self.context.assign_split(self.splits.pop(0), self.waiting.pop(0))


@pytest.mark.parametrize("parallelism", [1, 2, 9])
def test_all_splits_of_a_bounded_source(parallelism):
    planned = plan_splits(ListSource(SPLITS), parallelism=parallelism)
    assert (names(planned), planned.is_finished, planned.version) == ("abcde", True, 3)
    assert our_threads() == []
    after = plan_splits(ListSource(), planned.checkpoint)
    assert (after.splits, after.is_finished) == ((), True)


@pytest.mark.parametrize("parallelism", [1, 2, 9])
def test_a_limit_is_kept_and_the_next_plan_goes_on(parallelism):
    source, checkpoint, plans = ListSource(SPLITS), None, []
    for _ in range(3):
        planned = plan_splits(source, checkpoint, max_splits=2, parallelism=parallelism)
        checkpoint = planned.checkpoint
        plans.append((names(planned), planned.is_finished))
    assert plans == [("ab", False), ("cd", False), ("e", True)]


def test_an_unbounded_source_gives_what_there_is_now():
    source = ListSource(SPLITS, is_bounded=False)
    planned = plan_splits(source, parallelism=2)
    assert (names(planned), planned.is_finished) == ("abcde", False)
    nothing = plan_splits(source, planned.checkpoint, parallelism=2)
    assert (nothing.splits, nothing.is_finished) == ((), False)


def test_an_unbounded_source_without_end_is_cut_by_the_limit():
    source = NumberSequenceSource(0, None)
    first = plan_splits(source, max_splits=3, parallelism=2)
    second = plan_splits(source, first.checkpoint, max_splits=3, parallelism=2)
    assert len(first.splits) == len(second.splits) == 3
    assert not set(first.splits) & set(second.splits)


def test_what_start_delays_is_done_at_once_and_once():
    source = ListSource(SPLITS, is_bounded=False, enumerator=Discovering)
    assert names(plan_splits(source)) == "abcde"
    assert source.enumerator.looks == 1

    class Once(Discovering):
        period = None

    source = ListSource(SPLITS, is_bounded=False, enumerator=Once)
    assert names(plan_splits(source, max_splits=1)) == "a"
    assert source.enumerator.looks == 1


def test_readers_that_get_nothing_leave_the_limit_to_the_others():
    class OnlyTheLast(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            if subtask_id == self.context.current_parallelism - 1:
                super().handle_split_request(subtask_id, requester_hostname)

    source = ListSource(SPLITS, is_bounded=False, enumerator=OnlyTheLast)
    assert names(plan_splits(source, max_splits=2, parallelism=4)) == "ab"


def test_splits_that_come_unasked_are_in_the_plan():
    class Eager(OnRequest):
        def add_reader(self, subtask_id):
            while self.splits:
                self.context.assign_split(self.splits.pop(0), subtask_id)

    planned = plan_splits(ListSource(SPLITS, enumerator=Eager), parallelism=2)
    assert (names(planned), planned.is_finished) == ("abcde", True)


def test_an_answer_from_a_thread_of_its_own_is_waited_for():
    class Threaded(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            def answer():
                self.context.run_in_coordinator_thread(
                    lambda: OnRequest.handle_split_request(self, subtask_id, requester_hostname)
                )

            helpers.append(threading.Thread(target=answer))
            helpers[-1].start()

    helpers: list[threading.Thread] = []
    planned = plan_splits(ListSource(SPLITS, enumerator=Threaded), parallelism=2)
    assert (sorted(names(planned)), planned.is_finished) == (list("abcde"), True)
    for helper in helpers:
        helper.join(DEADLINE)


def test_an_enumerator_that_never_answers_is_named():
    class Silent(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            pass

    with pytest.raises(SourceError, match=r"of ListSource did not answer in 0\.05 s") as caught:
        plan_splits(ListSource(SPLITS, enumerator=Silent), parallelism=2, timeout=0.05)
    assert "2 split requests are open" in str(caught.value)
    assert our_threads() == []


def test_an_enumerator_that_blocks_is_named_with_what_it_is_in(monkeypatch):
    go = threading.Event()

    class Blocked(OnRequest):
        def start(self):
            go.wait(DEADLINE)

    monkeypatch.setattr("headgate.source.planning._CLOSE", 0.01)
    with pytest.raises(SourceError, match="did not answer") as caught:
        plan_splits(ListSource(SPLITS, enumerator=Blocked), timeout=0.05)
    assert "it runs start" in str(caught.value)
    go.set()


def test_what_the_enumerator_raises_is_raised():
    class Failing(OnRequest):
        def start(self):
            raise PermissionError("not for you")

    with pytest.raises(SourceError, match="failed in start: PermissionError: not for you"):
        plan_splits(ListSource(enumerator=Failing))

    class Unsaved(OnRequest):
        def snapshot_state(self, checkpoint_id):
            raise LookupError("no state")

    with pytest.raises(SourceError, match="failed in snapshot_state: LookupError: no state"):
        plan_splits(ListSource(enumerator=Unsaved))
    with pytest.raises(StateVersionError):
        plan_splits(ListSource(), b"\x00\x00\x00\x63{}")
    assert our_threads() == []


def test_events_need_real_readers():
    class Talking(OnRequest):
        def add_reader(self, subtask_id):
            self.context.send_event_to_source_reader(subtask_id, SourceEvent("hello"))

    with pytest.raises(NotBuiltError, match="sends events to its readers, and a plan has none"):
        plan_splits(ListSource(enumerator=Talking))

    class TalkingReader(ListReader):
        def start(self):
            self.context.send_source_event_to_coordinator(SourceEvent("hello"))

    with pytest.raises(NotBuiltError, match="the readers of ListSource send events"):
        list(read_splits(ListSource(reader=TalkingReader), 3, ()))


@pytest.mark.parametrize("limit", [{"max_splits": 0}, {"parallelism": 0}])
def test_limits_are_positive(limit):
    with pytest.raises(OptionError, match=f"{next(iter(limit))}=0 is outside 1 to"):
        plan_splits(ListSource(), **limit)


class TestReadSplits:
    def test_these_and_no_others(self):
        source = ListSource(SPLITS)
        planned = plan_splits(source)
        records = list(read_splits(source, planned.version, planned.splits[1:3]))
        assert records == [(name, n) for name in "bc" for n in range(3)]
        assert source.readers[-1].is_closed
        assert list(read_splits(source, 3, ())) == []

    def test_splits_of_an_older_version(self):
        old = ("a", b'{"name":"a","first":1,"last":3}')
        assert list(read_splits(ListSource(), 2, [old])) == [("a", 1), ("a", 2)]

    def test_an_early_end_closes_the_reader(self):
        source = ListSource(SPLITS)
        records = read_splits(source, 3, plan_splits(source).splits)
        assert next(records) == ("a", 0)
        records.close()
        assert source.readers[-1].is_closed

    def test_an_error_names_the_splits(self):
        class Failing(ListReader):
            def poll_next(self, output):
                raise OSError("disk gone")

        source = ListSource(SPLITS, reader=Failing)
        planned = plan_splits(source)
        with pytest.raises(SourceError, match="disk gone") as caught:
            list(read_splits(source, planned.version, planned.splits[:2]))
        assert "splits a, b" in str(caught.value)
        assert source.readers[-1].is_closed

    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_a_chain_of_sources(self, parallelism):
        source = (
            HybridSource.builder(NumberSequenceSource(0, 1000))
            .add_source(NumberSequenceSource(1000, 1700))
            .build()
        )
        checkpoint, numbers = None, []
        for _ in range(100):
            planned = plan_splits(source, checkpoint, max_splits=3, parallelism=parallelism)
            checkpoint = planned.checkpoint
            for split in planned.splits:
                for batch in read_splits(source, planned.version, [split]):
                    numbers += batch.column(0).to_pylist()
            if planned.is_finished:
                break
        assert sorted(numbers) == list(range(1700))


@settings(max_examples=50, deadline=None)
@given(
    number=st.integers(0, 12),
    plans=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=8),
    is_bounded=st.booleans(),
)
def test_any_chain_of_plans_has_every_split_once(number, plans, is_bounded):
    source = ListSource([ListSplit(f"s{n}") for n in range(number)], is_bounded=is_bounded)
    checkpoint, found = None, []
    for limit, parallelism in [*plans, (None, 2)]:
        planned = plan_splits(source, checkpoint, max_splits=limit, parallelism=parallelism)
        assert limit is None or len(planned.splits) <= limit
        checkpoint = planned.checkpoint
        found += [split_id for split_id, _ in planned.splits]
    assert found == [f"s{n}" for n in range(number)]
    assert planned.is_finished == is_bounded
