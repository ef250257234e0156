"""Fetchers of a reader in real threads: after Flink's SplitFetcherManagerTest."""

import logging
import threading
import time

import pytest
from tests.source.base_kit import (
    TIMEOUT,
    NumberOutput,
    NumberReader,
    NumberSplit,
    NumbersReader,
    poll,
    read_to_end,
    ten_splits,
)

from headgate.errors import NotBuiltError, SourceError
from headgate.source import InputStatus
from headgate.source.base import SingleThreadFetcherManager, SplitReader


def fetcher_threads():
    return [t for t in threading.enumerate() if t.name.startswith("headgate-fetcher")]


@pytest.fixture
def managers():
    made = []

    def make(new=NumberReader, **options):
        readers = []

        def supply():
            readers.append(new())
            return readers[-1]

        manager = SingleThreadFetcherManager(supply, **options)
        manager.split_readers = readers
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.close(TIMEOUT)


def wait_for(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def test_one_fetcher_is_made_when_there_is_a_split(managers):
    manager = managers(lambda: NumberReader(is_open=False), name="7")
    assert (manager.fetchers(), fetcher_threads()) == ([], [])
    manager.add_splits([NumberSplit("a")])
    manager.add_splits([NumberSplit("b")])
    (fetcher,) = manager.fetchers()
    (thread,) = fetcher_threads()
    assert (thread.name, thread.daemon) == ("headgate-fetcher-7-0", True)
    wait_for(lambda: fetcher.assigned_splits() == ["a", "b"])


def test_an_idle_fetcher_is_shut_down_when_all_it_put_is_out(managers):
    manager = managers(lambda: NumberReader(batch=10))
    manager.add_splits([NumberSplit("a")])
    (fetcher,) = manager.fetchers()
    wait_for(fetcher.is_idle)
    assert not manager.maybe_shutdown_finished_fetchers(), "its batch is still in the queue"
    assert manager.split_readers[0].closed == 0
    manager.queue.poll()
    assert manager.maybe_shutdown_finished_fetchers()
    wait_for(lambda: manager.split_readers[0].closed == 1)


def test_a_fetcher_with_a_split_is_not_shut_down(managers):
    manager = managers(lambda: NumberReader(is_open=False))
    manager.add_splits([NumberSplit("a")])
    assert manager.split_readers[0].blocked.wait(TIMEOUT)
    assert not manager.maybe_shutdown_finished_fetchers()
    assert len(manager.fetchers()) == 1


def test_after_an_idle_one_a_new_fetcher_is_made(managers):
    manager = managers(lambda: NumberReader(batch=10))
    for round_ in range(3):
        manager.add_splits([NumberSplit("a")])
        wait_for(manager.fetchers()[0].is_idle)
        assert manager.queue.poll() is not None
        assert manager.maybe_shutdown_finished_fetchers()
        assert len(manager.split_readers) == round_ + 1


def test_the_first_error_is_raised_and_the_later_ones_are_its_notes(managers):
    manager = managers()
    manager.check_errors()
    future = manager.queue.get_availability_future()
    first = manager.create_split_fetcher()
    first.split_reader.error = OSError("the first")
    first.add_splits([NumberSplit("a")])
    manager.start_fetcher(first)
    future.result(TIMEOUT)
    second = manager.create_split_fetcher()
    second.split_reader.error = OSError("the second")
    second.add_splits([NumberSplit("b")])
    manager.start_fetcher(second)
    with pytest.raises(SourceError, match="split a: OSError: the first") as caught:
        manager.check_errors()
    wait_for(lambda: getattr(caught.value, "__notes__", []))
    assert "the second" in caught.value.__notes__[0]
    assert not manager.maybe_shutdown_finished_fetchers(), "a failed fetcher is not finished"


def test_an_error_of_close_is_logged(managers, caplog):
    class CannotClose(NumberReader):
        def close(self):
            raise OSError("handle lost")

    manager = managers(CannotClose)
    manager.add_splits([NumberSplit("a")])
    with caplog.at_level(logging.WARNING, "headgate.source"):
        manager.close(TIMEOUT)
    assert "handle lost" in caplog.text


@pytest.mark.parametrize("where", ["fetch", "put", "wait"])
def test_close_ends_a_fetcher_wherever_it_blocks(managers, where):
    manager = managers(lambda: NumberReader(batch=1, is_open=where != "fetch"), queue_capacity=1)
    split = NumberSplit("a", count=0 if where == "wait" else 10)
    manager.add_splits([split])
    (fetcher,) = manager.fetchers()
    reached = {
        "fetch": manager.split_readers[0].blocked.is_set,
        "put": lambda: manager.split_readers[0].fetches == 2,
        "wait": fetcher.is_idle,
    }
    wait_for(reached[where])
    manager.close(TIMEOUT)
    assert fetcher_threads() == []
    assert manager.split_readers[0].closed == 1
    assert manager.queue.is_empty()


def test_close_wakes_again_a_reader_that_misses_wake_ups(managers):
    class Deaf(NumberReader):
        heard = 0

        def wake_up(self):
            self.heard += 1
            if self.heard > 3:
                super().wake_up()

    manager = managers(lambda: Deaf(is_open=False))
    manager.add_splits([NumberSplit("a")])
    assert manager.split_readers[0].blocked.wait(TIMEOUT)
    manager.close(TIMEOUT)
    assert manager.split_readers[0].heard > 3


def test_close_gives_up_on_a_fetch_that_ignores_wake_ups_and_names_its_split(managers, caplog):
    class Stuck(NumberReader):
        def wake_up(self):
            pass

    manager = managers(lambda: Stuck(is_open=False))
    manager.add_splits([NumberSplit("part-7.parquet:3")])
    reader = manager.split_readers[0]
    assert reader.blocked.wait(TIMEOUT)
    with caplog.at_level(logging.WARNING, "headgate.source"):
        manager.close(0.2)
    assert "Stuck did not return from fetch() within 0.2 s" in caplog.text
    assert "part-7.parquet:3" in caplog.text
    (thread,) = fetcher_threads()
    assert thread.daemon
    reader.open()  # Once fetch() returns, the thread cleans up.
    thread.join(TIMEOUT)
    assert reader.closed == 1


def test_a_paused_fetcher_is_resumed(managers):
    manager = managers(lambda: NumberReader(batch=10))
    fetcher = manager.create_split_fetcher()
    fetcher.pause()
    fetcher.add_splits([NumberSplit("a")])
    manager.start_fetcher(fetcher)
    assert manager.queue.is_empty()
    assert not fetcher.is_idle()
    fetcher.resume()
    wait_for(lambda: manager.queue.size() == 1)


def test_a_split_reader_that_cannot_pause_refuses_at_once(managers):
    class CannotPause(NumberReader):
        pause_or_resume_splits = SplitReader.pause_or_resume_splits

    strict, lenient = managers(CannotPause), managers(CannotPause, allow_unaligned_splits=True)
    for manager in (strict, lenient):
        manager.pause_or_resume_splits(["a"], [])  # No fetcher runs, so there is no split to pause.
        manager.add_splits([NumberSplit("a")])
    with pytest.raises(NotBuiltError, match=r"CannotPause cannot .*"):
        strict.pause_or_resume_splits(["a"], [])
    lenient.pause_or_resume_splits(["a"], [])


def test_spec_13_01_the_error_of_a_fetcher_reaches_the_reader_that_waits():
    reader, output = NumbersReader(lambda: NumberReader(is_open=False)), NumberOutput()
    reader.add_splits([NumberSplit("a"), NumberSplit("b")])
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
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
    readers, outputs = [NumbersReader(NumberReader) for _ in range(8)], []
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


def test_close_at_any_moment_ends_all_threads():
    for seen in range(0, 100, 9):
        reader, output = NumbersReader(), NumberOutput()
        reader.add_splits(ten_splits())
        poll(reader, output, lambda: len(output.numbers) >= seen)  # noqa: B023 - called at once
        reader.close()
        assert fetcher_threads() == []
        assert reader.split_readers[0].closed == 1
