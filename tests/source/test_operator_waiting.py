"""Waiting of an operator: no missed wake-up, no needless poll, wake-ups from any thread."""

import gc
import threading
import weakref
from concurrent.futures import Future
from functools import partial

import pytest
from tests.kit.contexts import FakeReaderContext
from tests.kit.operator import (
    DONE,
    END,
    MORE,
    NOTHING,
    Rig,
    ScriptedReader,
    ScriptedSource,
    emit,
    parts,
)

from headgate.source import SourceOperator, WatermarkStrategy
from headgate.source.runtime.availability import LONGEST_DELAY, PATIENCE, Availability
from headgate.source.runtime.mailbox import Mailbox

DEADLINE = 20


class BlockedReader(ScriptedReader):
    """Sets an event when its operator calls is_available()."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Event()

    def is_available(self):
        self.asked.set()
        return super().is_available()


class Reading:
    """An operator in its own thread with the real clock, started until it waits for its reader."""

    def __init__(self, watermarks=None):
        self.reader = BlockedReader()
        self.mailbox = Mailbox()
        self.operator = SourceOperator(
            ScriptedSource(self.reader),
            FakeReaderContext(),
            self.mailbox.signal,
            watermarks=watermarks,
        )
        self.records = []
        self.got = threading.Condition()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        assert self.reader.asked.wait(DEADLINE)
        return self

    def __exit__(self, *_):
        self.mailbox.post(self.operator.stop)
        self.join()

    def _run(self):
        operator = self.operator
        operator.start()
        while not operator.is_finished:
            self.mailbox.clear()
            while (action := self.mailbox.take()) is not None:
                action()
            record = operator.poll()
            if record is None:
                if not operator.is_finished:
                    self.mailbox.wait(operator.timeout())
                continue
            with self.got:
                self.records.append(record)
                self.got.notify_all()
        operator.close()

    def wait_for(self, *records):
        with self.got:
            assert self.got.wait_for(lambda: self.records == list(records), DEADLINE)

    def join(self):
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()


class TestThreads:
    def test_the_future_of_the_reader_ends_a_blocked_wait(self):
        with Reading() as reading:
            reading.reader.script(emit(1))
            reading.wait_for(1)

    def test_messages_of_many_threads_all_arrive(self):
        each, threads = 50, 8
        with Reading() as reading:
            added = []
            reading.reader.add_splits = lambda splits: added.extend(s.split_id for s in splits)

            def send(number):
                for n in range(each):
                    splits = parts(f"{number}-{n:02}")
                    reading.mailbox.post(partial(reading.operator.add_splits, 3, splits))

            senders = [threading.Thread(target=send, args=[n]) for n in range(threads)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join(DEADLINE)
            reading.mailbox.post(reading.operator.no_more_splits)
            reading.join()
        assert len(added) == len(set(added)) == each * threads
        for number in range(threads):
            mine = [name for name in added if name.startswith(f"{number}-")]
            assert mine == sorted(mine), "of one thread in their order"

    def test_a_producer_that_races_with_the_wait_is_never_missed(self):
        count = 3000
        with Reading() as reading:

            def produce():
                for number in range(count):
                    reading.reader.script(emit(number))

            producer = threading.Thread(target=produce)
            producer.start()
            producer.join(DEADLINE)
            reading.wait_for(*range(count))


class TestFutures:
    def test_spec_section_13_3_a_reader_with_nothing_is_not_polled_until_its_future_is_done(self):
        rig = Rig()
        rig.drain()
        polls = rig.reader.polls
        for _ in range(100):
            assert rig.operator.poll() is None
        assert rig.reader.polls == polls
        assert rig.run(emit(1)) == [1]

    def test_spec_section_13_9_the_same_future_is_subscribed_to_once(self):
        rig = Rig()
        subscribed = []
        rig.reader.future.add_done_callback = subscribed.append
        for _ in range(5):
            rig.operator.add_splits(3, [])
            rig.drain()
        assert len(subscribed) == 1

    def test_a_future_that_is_done_without_need_is_bounded(self):
        """A reader with no data and a completed future must not cause a busy loop."""
        rig = Rig()
        rig.reader.is_available = lambda: DONE
        polls = []
        for _ in range(10_000):
            rig.clock.pass_by(0.001)
            before = rig.reader.polls
            assert rig.operator.poll() is None
            polls.append(rig.reader.polls - before)
        assert polls[0] == PATIENCE + 1
        assert 90 <= sum(polls) <= 130, "about ten times a second over ten seconds"
        assert rig.operator.timeout() <= LONGEST_DELAY
        rig.reader.steps.append(emit(1))
        rig.clock.pass_by(LONGEST_DELAY)
        assert rig.operator.poll() == 1

    def test_records_in_between_keep_a_reader_from_being_slowed_down(self):
        rig = Rig()
        rig.reader.is_available = lambda: DONE
        for number in range(5 * PATIENCE):
            rig.reader.steps.extend([NOTHING, emit(number)])
            assert rig.operator.poll() == number

    def test_a_new_split_overrides_the_delay(self):
        rig = Rig()
        rig.reader.is_available = lambda: DONE
        rig.drain()
        rig.reader.steps.append(emit(1))
        assert rig.operator.poll() is None
        rig.operator.add_splits(3, parts("a"))
        assert rig.operator.poll() == 1

    def test_a_future_that_was_cancelled_or_failed_counts_as_done(self):
        for end in (Future.cancel, lambda future: future.set_exception(OSError())):
            availability = Availability(lambda _: None)
            future = Future()
            availability.found_nothing(future, 0.0)
            assert not availability.should_poll(0.0)
            end(future)
            assert availability.should_poll(0.0)

    def test_many_polls_without_a_record_give_the_thread_back(self):
        rig = Rig()
        rig.reader.steps.extend([MORE] * 1000)
        rig.operator.poll()
        assert 0 < rig.reader.polls < 1000
        assert rig.woken, "and ask for it again"
        while rig.reader.steps:
            assert rig.operator.poll() is None
        assert rig.reader.polls <= 1000 + 1


class TestTimeout:
    def test_the_timeout_is_the_next_timer_or_none(self):
        assert Rig().operator.timeout() is None
        rig = Rig(WatermarkStrategy.for_monotonous_timestamps())
        rig.clock.pass_by(0.15)
        assert rig.operator.timeout() == pytest.approx(0.05)
        rig.clock.pass_by(5)
        assert rig.operator.timeout() == 0
        rig.drain()
        assert rig.operator.timeout() == pytest.approx(0.2), "missed times are not made up for"
        rig.run(END)
        assert rig.operator.timeout() is None


class TestMailbox:
    def test_the_signal_is_cleared_before_the_look_and_set_after_the_post(self):
        mailbox = Mailbox()
        done = []
        mailbox.post(lambda: done.append(1))
        mailbox.attach(lambda: done.append("woken"))
        assert done.pop() == "woken", "a wake-up that is attached late is called at once"
        mailbox.clear()
        mailbox.post(lambda: done.append(2))
        assert done.pop() == "woken", "a post after the clearing is signalled again"
        while action := mailbox.take():
            action()
        assert done == [1, 2]
        mailbox.wait(None)
        mailbox.close()
        mailbox.post(lambda: done.append(3))
        assert mailbox.take() is None

    def test_an_operator_is_freed_when_its_owner_drops_it(self):
        rig = Rig()
        rig.drain()
        gone = weakref.ref(rig.operator)
        future = rig.reader.future
        rig.operator.close()
        del rig
        gc.collect()
        assert gone() is None
        future.set_result(None)
