"""The reader on top of a fetcher: after Flink's SourceReaderTestBase and SourceReaderBaseTest."""

import threading

import pytest
from tests.kit.blocking_reader import (
    TIMEOUT,
    NumberOutput,
    NumberReader,
    NumberSplit,
    NumbersReader,
    blocked,
    poll,
    read_to_end,
    ten_splits,
)

from headgate.errors import ClosedError, NotBuiltError, SourceError
from headgate.source import InputStatus
from headgate.source.base import AVAILABLE, SplitReader

MORE, NOTHING, END = InputStatus


def test_spec_13_01_ten_splits_of_ten(readers, output):
    reader = readers()
    reader.start()
    reader.add_splits(ten_splits())
    poll(reader, output, lambda: len(output.numbers) == 100)
    assert poll(reader, output, lambda: sum(map(len, reader.finished)) == 10) is not END
    assert reader.poll_next(output) is NOTHING, "a split may still come"
    reader.notify_no_more_splits()
    assert [reader.poll_next(output) for _ in range(3)] == [END] * 3
    assert sorted(output.numbers) == list(range(100))
    for split in range(10):
        of_split = [n for n in output.numbers if n // 10 == split]
        assert of_split == sorted(of_split)


def test_spec_13_01_the_end_comes_only_when_everything_is_out(readers, output):
    reader = readers()
    reader.add_splits(ten_splits())
    reader.notify_no_more_splits()
    assert read_to_end(reader, output) is END
    assert len(output.numbers) == 100
    assert reader.snapshot_state(1) == []
    assert sorted(i for finished in reader.finished for i in finished) == sorted(
        split.split_id for split in ten_splits()
    )


def test_spec_13_01_one_element_per_poll(readers, output):
    reader = readers()
    reader.add_splits(ten_splits())
    counts = []
    while len(output.numbers) < 100:
        before = len(output.numbers)
        status = reader.poll_next(output)
        counts.append((status, len(output.numbers) - before))
        if status is NOTHING:
            reader.is_available().result(TIMEOUT)
    assert {count for status, count in counts if status is MORE} == {1}
    assert {count for status, count in counts if status is NOTHING} <= {0}


def test_without_any_split_it_ends(readers, output):
    reader = readers()
    assert reader.poll_next(output) is NOTHING
    future = reader.is_available()
    assert not future.done()
    reader.notify_no_more_splits()
    assert future.done()
    assert reader.poll_next(output) is END


def test_spec_13_02_nothing_until_a_split_is_added(readers, output):
    reader = readers()
    assert reader.poll_next(output) is NOTHING
    future = reader.is_available()
    assert not future.done()
    reader.add_splits([NumberSplit("a")])
    future.result(TIMEOUT)
    assert reader.poll_next(output) is MORE
    assert output.numbers == [0]


def test_spec_13_02_the_future_is_not_lost(readers, output):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a", count=1)])
    assert reader.poll_next(output) is NOTHING
    futures = [reader.is_available(), reader.is_available()]
    assert not any(f.done() for f in futures)
    reader.split_readers[0].open()
    for future in futures:
        future.result(TIMEOUT)
    assert reader.poll_next(output) is MORE


def test_it_is_available_while_a_batch_is_in_hand(readers, output):
    reader = readers(lambda: NumberReader(batch=10))
    reader.add_splits([NumberSplit("a")])
    poll(reader, output, lambda: output.numbers)
    assert reader.is_available() is AVAILABLE


def test_a_split_goes_to_the_fetcher_that_runs(readers, output):
    reader = readers()
    reader.add_splits(ten_splits()[:5])
    poll(reader, output, lambda: len(output.numbers) == 10)
    reader.add_splits(ten_splits()[5:])
    reader.notify_no_more_splits()
    read_to_end(reader, output)
    assert sorted(output.numbers) == list(range(100))


def test_the_fetcher_is_kept_while_splits_may_follow(readers, output):
    reader = readers()
    for round_ in range(3):
        reader.add_splits([NumberSplit(f"s{round_}")])
        poll(reader, output, lambda: len(reader.finished) == round_ + 1)  # noqa: B023 - called at once
        reader.poll_next(output)
    (split_reader,) = reader.split_readers
    assert split_reader.closed == 0
    reader.notify_no_more_splits()
    assert read_to_end(reader, output) is END
    reader.close()
    assert split_reader.closed == 1


def test_spec_13_04_a_snapshot_covers_what_was_emitted(readers, output):
    reader = readers()
    reader.add_splits(ten_splits())
    poll(reader, output, lambda: len(output.numbers) == 37)
    assert sum(s.index for s in reader.snapshot_state(1)) == 37
    assert len(reader.snapshot_state(1)) == 10


def test_spec_13_04_a_split_at_its_end_is_there_until_it_is_finished(readers, output):
    reader = readers()
    reader.add_splits(ten_splits())
    poll(reader, output, lambda: len(output.numbers) == 99)
    last = {s.split_id: s.index for s in reader.snapshot_state(1)}
    assert sum(10 - index for index in last.values()) == 1
    reader.poll_next(output)
    assert all(s.index == 10 for s in reader.snapshot_state(1))


@pytest.mark.parametrize("emitted", [0, 1, 37, 99, 100])
def test_spec_13_05_what_is_restored_gives_exactly_the_rest(readers, output, emitted):
    first, second = readers(), readers()
    first.add_splits(ten_splits())
    poll(first, output, lambda: len(output.numbers) == emitted)
    splits = first.snapshot_state(1)
    lost, more = NumberOutput(), min(5, 100 - emitted)
    poll(first, lost, lambda: len(lost.numbers) >= more)  # It read on, and then it was lost.
    second.add_splits(splits)
    second.notify_no_more_splits()
    assert read_to_end(second, output) is END
    assert sorted(output.numbers) == list(range(100))


def test_a_split_is_finished_after_its_last_record(readers, output):
    reader = readers(lambda: NumberReader(batch=4))
    seen = []
    reader.on_split_finished = lambda finished: seen.append((dict(finished), list(output.numbers)))
    reader.add_splits([NumberSplit("a")])
    reader.notify_no_more_splits()
    read_to_end(reader, output)
    ((finished, numbers),) = seen
    assert finished["a"]["index"] == 10
    assert numbers == list(range(10))


def test_a_finished_split_can_be_added_again(readers, output):
    reader = readers()
    for round_ in range(3):
        reader.add_splits([NumberSplit("a", first=10 * round_)])
        poll(reader, output, lambda: len(reader.finished) == round_ + 1)  # noqa: B023 - called at once
    assert output.numbers == list(range(30))
    assert output.log.count(("create", "a")) == output.log.count(("release", "a")) == 3


def test_a_split_that_is_being_read_cannot(readers):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a")])
    with pytest.raises(SourceError, match="split a was added twice"):
        reader.add_splits([NumberSplit("b"), NumberSplit("a")])
    with pytest.raises(SourceError, match="split b was added twice"):
        reader.add_splits([NumberSplit("b"), NumberSplit("b")])
    assert len(reader.snapshot_state(1)) == 1


def test_no_split_after_the_end(readers, output):
    reader = readers()
    reader.notify_no_more_splits()
    assert reader.poll_next(output) is END
    with pytest.raises(SourceError, match="split a was added after the end of input"):
        reader.add_splits([NumberSplit("a")])


def test_splits_are_paused_and_resumed(readers, output):
    reader = readers(lambda: NumberReader(batch=1))
    reader.add_splits([NumberSplit("a"), NumberSplit("b", first=10)])
    reader.pause_or_resume_splits(["a"], [])
    poll(reader, output, lambda: any("b" in finished for finished in reader.finished))
    assert [n for n in output.numbers if n >= 10] == list(range(10, 20))
    seen = len(output.numbers)
    assert seen < 20, "a stands still"
    reader.pause_or_resume_splits([], ["a"])
    reader.notify_no_more_splits()
    assert read_to_end(reader, output) is END
    assert sorted(output.numbers) == list(range(20))


def test_pausing_is_refused_where_the_split_reader_cannot(readers):
    class CannotPause(NumberReader):
        pause_or_resume_splits = SplitReader.pause_or_resume_splits

    reader = readers(lambda: CannotPause(is_open=False))
    reader.add_splits([NumberSplit("a")])
    with pytest.raises(NotBuiltError, match="cannot pause single splits"):
        reader.pause_or_resume_splits(["a"], [])


def test_a_closed_reader_says_so(readers, output):
    reader = readers()
    reader.close()
    with pytest.raises(ClosedError):
        reader.poll_next(output)
    with pytest.raises(ClosedError):
        reader.add_splits([NumberSplit("a")])


def test_spec_13_01_the_error_of_a_fetcher_reaches_the_reader_that_waits(readers, output):
    reader = readers(blocked)
    reader.add_splits([NumberSplit("a"), NumberSplit("b")])
    assert reader.poll_next(output) is NOTHING
    future = reader.is_available()
    split_reader = reader.split_readers[0]
    split_reader.error = ValueError("no such partition")
    split_reader.open()
    future.result(TIMEOUT)
    with pytest.raises(SourceError, match="split a, b: ValueError: no such partition"):
        reader.poll_next(output)
    reader.close()
    assert split_reader.closed == 1


def test_many_readers_in_many_threads_read_everything():
    readers, outputs = [NumbersReader(queue_capacity=1) for _ in range(8)], []
    for index, reader in enumerate(readers):
        reader.add_splits(ten_splits(10 * index))
        reader.notify_no_more_splits()
    threads = []
    for reader in readers:
        outputs.append(NumberOutput())
        thread = threading.Thread(target=read_to_end, args=(reader, outputs[-1]), daemon=True)
        threads.append(thread)
        thread.start()
    for thread, reader in zip(threads, readers, strict=True):
        thread.join(TIMEOUT)
        assert not thread.is_alive()
        reader.close()
    assert sorted(n for output in outputs for n in output.numbers) == list(range(800))


def test_close_at_any_moment_ends_the_thread():
    for seen in range(0, 100, 9):
        reader, output = NumbersReader(), NumberOutput()
        reader.add_splits(ten_splits())
        poll(reader, output, lambda: len(output.numbers) >= seen)  # noqa: B023 - called at once
        reader.close()
        assert [t for t in threading.enumerate() if t.name.startswith("headgate-fetcher")] == []
        assert reader.split_readers[0].closed == 1
