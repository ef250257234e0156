"""Sources in plain Python: all records once, in the caller's thread, without leaks."""

from __future__ import annotations

import gc
import itertools
import signal
import subprocess
import sys
import threading
import weakref

import pyarrow as pa
import pytest
from tests.kit.coordinator import (
    DEADLINE,
    ListReader,
    ListSource,
    ListSplit,
    OnRequest,
)
from tests.kit.leftovers import our_threads

from headgate.errors import (
    ClosedError,
    NotBuiltError,
    SourceError,
)
from headgate.source import MAX_WATERMARK, MIN_WATERMARK, NumberSequenceSource, SourceEvent, read
from headgate.source.runtime import mailbox

SPLITS = [ListSplit("a", 0, 7), ListSplit("b", 0, 0), ListSplit("c", 0, 3), ListSplit("d", 5, 12)]
ALL = sorted((s.name, n) for s in SPLITS for n in range(s.first, s.last))


@pytest.fixture(autouse=True)
def _no_wake_up_is_missed(monkeypatch, request):
    """Remove the regular wake-ups of a waiting thread, so that a missed wake-up hangs."""
    if "ctrl_c" not in request.node.name:
        monkeypatch.setattr(mailbox, "_NAP", 1000)


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_all_records_come_once(parallelism):
    with read(ListSource(SPLITS), parallelism) as reading:
        assert sorted(reading) == ALL
        assert list(reading) == []
        assert reading.finished_splits <= 4
    assert our_threads() == []


def test_readers_take_turns():
    splits = [ListSplit("a", 0, 10**9), ListSplit("b", 0, 10**9)]
    with read(ListSource(splits), 2) as reading:
        assert any(name == "b" for name, _ in reading)  # Now both readers have their splits.
        names = [name for name, _ in itertools.islice(reading, 100)]
    assert "".join(names) == "ab" * 50


def test_the_readers_live_in_the_callers_thread():
    seen = set()

    class Watched(ListReader):
        def poll_next(self, output):
            seen.add(threading.current_thread())
            return super().poll_next(output)

    with read(ListSource(SPLITS, reader=Watched), 2) as reading:
        assert len(list(reading)) == len(ALL)
    assert seen == {threading.current_thread()}


def test_nothing_runs_before_the_first_record_and_nothing_after_the_close():
    source = ListSource(SPLITS)
    reading = read(source)
    assert (our_threads(), source.enumerators, source.readers) == ([], [], [])
    next(reading)
    assert our_threads() == ["headgate-enumerators"]
    reading.close()
    reading.close()
    assert our_threads() == []
    assert source.enumerator.is_closed
    assert source.readers[0].is_closed
    with pytest.raises(ClosedError, match="this read of ListSource is closed"):
        next(reading)
    with pytest.raises(ClosedError):
        reading.checkpoint()
    read(source).close()


def test_an_error_of_the_reader_names_its_splits_and_closes_the_read():
    class Failing(ListReader):
        def poll_next(self, output):
            if self.splits and self.splits[0].first == 2:
                raise OSError("disk gone")
            return super().poll_next(output)

    source = ListSource(SPLITS, reader=Failing)
    reading = read(source)
    assert [next(reading), next(reading)] == [("a", 0), ("a", 1)]
    with pytest.raises(SourceError, match="OSError: disk gone") as caught:
        next(reading)
    assert "split a" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert source.enumerator.is_closed
    assert our_threads() == []
    with pytest.raises(ClosedError):
        next(reading)


def test_an_error_of_the_enumerator_reaches_the_caller():
    class Failing(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            self.context.call_async(lambda: {}["x"], self.found)

        def found(self, result, error):
            raise error

    with (
        read(ListSource(SPLITS, enumerator=Failing), 2) as reading,
        pytest.raises(SourceError, match="the enumerator of ListSource failed in the handler"),
    ):
        next(reading)
    assert our_threads() == []


def test_an_enumerator_that_cannot_give_its_state_fails_the_checkpoint():
    class Failing(OnRequest):
        def snapshot_state(self, checkpoint_id):
            raise LookupError("no state")

    with read(ListSource(SPLITS, enumerator=Failing)) as reading:
        next(reading)
        with pytest.raises(SourceError, match="failed in snapshot_state: LookupError: no state"):
            reading.checkpoint()
        with pytest.raises(SourceError, match="no state"):
            next(reading)


def test_events_reach_both_sides():
    seen = []

    class Talking(ListReader):
        def start(self):
            super().start()
            self.context.send_source_event_to_coordinator(SourceEvent("hello", b"\x01"))

        def handle_source_event(self, event):
            seen.append(event)

    with read(ListSource(SPLITS, reader=Talking)) as reading:
        assert len(list(reading)) == len(ALL)
    assert seen == [SourceEvent("hello", b"\x01")]


def test_the_watermark_is_the_least_of_all_readers():
    class Marking(ListReader):
        def poll_next(self, output):
            if self.splits and self.splits[0].first < self.splits[0].last:
                output.emit_watermark(self.splits[0].first * 100)
            return super().poll_next(output)

    class OneEach(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            if subtask_id not in self.waiting:
                self.waiting.append(subtask_id)
                self.context.assign_split(self.splits[subtask_id], subtask_id)

    splits = [ListSplit("a", 1, 5), ListSplit("b", 8, 10**9)]
    source = ListSource(splits, reader=Marking, enumerator=OneEach)
    with read(source, 2) as reading:
        assert reading.current_watermark == MIN_WATERMARK
        first = [(next(reading), reading.current_watermark) for _ in range(20)]
        assert [w for _, w in first] == sorted(w for _, w in first)
        assert reading.current_watermark == 400  # The reader of "a" may get more splits.
        context = source.enumerator.context
        context.run_in_coordinator_thread(lambda: context.signal_no_more_splits(0))
        assert any(800 <= reading.current_watermark < MAX_WATERMARK for _ in reading)
    with read(ListSource(splits[:1], reader=Marking)) as reading:
        assert len(list(reading)) == 4
        assert reading.current_watermark == MAX_WATERMARK


@pytest.fixture
def pythons_own_ctrl_c():
    """Python's handler of Ctrl-C, whatever the tests before have set in this process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_answered_at_once_and_reading_can_go_on(pythons_own_ctrl_c):
    waiting = threading.Event()

    class Waiting(ListReader):
        def is_available(self):
            waiting.set()
            return super().is_available()

    source = ListSource([ListSplit("a", 0, 1)], is_bounded=False, reader=Waiting)
    with read(source) as reading:
        assert next(reading) == ("a", 0)
        waiting.clear()
        in_time = []

        def interrupt():
            # Also if the reader never waits, so that the test ends; the assertion below says it then.
            in_time.append(waiting.wait(DEADLINE))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            next(reading)
        helper.join()
        assert in_time == [True]
        context = source.enumerator.context
        context.run_in_coordinator_thread(lambda: context.assign_split(ListSplit("b", 4, 5), 0))
        assert next(reading) == ("b", 4)


def test_a_forgotten_read_is_closed_by_the_garbage_collector():
    source = ListSource(SPLITS)
    reading = read(source)
    next(reading)
    (thread,) = [t for t in threading.enumerate() if t.name.startswith("headgate")]
    gone = weakref.ref(reading)
    reading.itself = reading  # Only the cycle collector finds it.
    del reading
    gc.collect()
    assert gone() is None
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert source.enumerator.is_closed
    assert source.readers[0].is_closed


def test_a_process_that_forgets_a_read_ends_quietly():
    script = (
        "from headgate.source import NumberSequenceSource, read\n"
        "reading = read(NumberSequenceSource(0, None), 2)\n"
        "print(next(reading).num_rows > 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_the_fetchers_of_a_real_source_end_with_the_read():
    with read(NumberSequenceSource(0, 100_000, batch_size=1000), 3) as reading:
        rows = next(reading).num_rows
        assert any(name.startswith("headgate-fetcher") for name in our_threads())
        checkpoint = reading.checkpoint()
        rows += sum(batch.num_rows for batch in itertools.islice(reading, 5))
    assert our_threads() == []
    with read(NumberSequenceSource(0, 100_000, batch_size=1000), 2, checkpoint=checkpoint) as rest:
        numbers = [n for batch in rest for n in batch.column(0).to_pylist()]
    assert len(numbers) == len(set(numbers)) == 99_000
    assert 1000 < rows <= 6000  # the last batch of a split is smaller


class TestToReader:
    def test_batches_become_an_arrow_stream(self):
        with read(NumberSequenceSource(0, 5000, batch_size=999), 2) as reading:
            stream = reading.to_reader()
            assert isinstance(stream, pa.RecordBatchReader)
            table = stream.read_all()
        assert sorted(table.column(0).to_pylist()) == list(range(5000))

    def test_an_unbounded_source_is_read_as_far_as_one_likes(self):
        with read(NumberSequenceSource(0, None, batch_size=10)) as reading:
            stream = reading.to_reader()
            rows = sum(stream.read_next_batch().num_rows for _ in range(20))
            checkpoint = reading.checkpoint()
        assert rows == 200
        with read(NumberSequenceSource(0, None, batch_size=10), checkpoint=checkpoint) as again:
            assert next(again).column(0)[0].as_py() == 200

    def test_a_source_without_schema_is_refused(self):
        with pytest.raises(NotBuiltError, match="ListSource has no schema"):
            read(ListSource(SPLITS)).to_reader()

    def test_records_that_are_no_batches_are_an_error(self):
        class Lying(ListSource):
            schema = pa.schema([("x", pa.int64())])

        with (
            read(Lying(SPLITS)) as reading,
            pytest.raises(SourceError, match="emitted a tuple instead of a RecordBatch"),
        ):
            reading.to_reader().read_all()

    def test_errors_pass_through_the_stream(self):
        class Failing(ListReader):
            def poll_next(self, output):
                raise OSError("disk gone")

        class Batches(ListSource):
            schema = pa.schema([("x", pa.int64())])

        with (
            read(Batches(SPLITS, reader=Failing)) as reading,
            pytest.raises(SourceError, match="disk gone"),
        ):
            reading.to_reader().read_all()
