"""Waiting of an operator: no missed wake-up, no needless poll, wake-ups from any thread."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future

import pytest
from tests.source.operator_kit import (
    DONE,
    END,
    MORE,
    NOTHING,
    Context,
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
        self.operator = SourceOperator(
            ScriptedSource(self.reader), Context(), watermarks=watermarks
        )
        self.records = []
        self.error = None
        self.got = threading.Condition()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        assert self.reader.asked.wait(DEADLINE)
        return self

    def __exit__(self, *_):
        self.operator.stop()
        self.join()

    def _run(self):
        self.operator.start()
        try:
            for record in self.operator.records():
                with self.got:
                    self.records.append(record)
                    self.got.notify_all()
        except RuntimeError as error:
            self.error = error
        finally:
            self.operator.close()

    def wait_for(self, *records):
        with self.got:
            assert self.got.wait_for(lambda: self.records == list(records), DEADLINE)

    def join(self):
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()


class TestThreads:
    def test_a_stop_ends_a_blocked_wait(self):
        with Reading() as reading:
            reading.operator.stop()
            reading.join()
        assert (reading.records, reading.error) == ([], None)
        assert reading.reader.calls[-1] == "close"

    def test_a_failure_ends_a_blocked_wait(self):
        with Reading() as reading:
            reading.operator.fail(RuntimeError("the driver is gone"))
            reading.join()
        assert str(reading.error) == "the driver is gone"
        assert reading.reader.calls[-1] == "close"

    def test_the_future_of_the_reader_ends_a_blocked_wait(self):
        with Reading() as reading:
            reading.reader.script(emit(1))
            reading.wait_for(1)

    def test_splits_end_a_blocked_wait(self):
        with Reading() as reading:
            reading.reader.add_splits = lambda splits: reading.reader.steps.append(emit("of a"))
            reading.operator.add_splits(3, parts("a"))
            reading.wait_for("of a")

    def test_no_more_splits_end_a_blocked_wait_even_when_the_reader_forgets_its_future(self):
        with Reading() as reading:
            reading.operator.no_more_splits()
            reading.join()
        assert reading.operator.is_finished

    def test_a_risen_limit_ends_a_wait_for_alignment(self):
        aligned = WatermarkStrategy.for_punctuated(lambda record, time: time)
        with Reading(aligned) as reading:
            reading.operator.align(0)
            reading.reader.script(emit(1), emit(2))
            reading.wait_for(1)
            reading.operator.align(1)
            reading.wait_for(1, 2)

    def test_orders_of_many_threads_all_arrive(self):
        each, threads = 50, 8
        with Reading() as reading:
            added = []
            reading.reader.add_splits = lambda splits: added.extend(s.split_id for s in splits)

            def send(number):
                for n in range(each):
                    reading.operator.add_splits(3, parts(f"{number}-{n:02}"))

            senders = [threading.Thread(target=send, args=[n]) for n in range(threads)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join(DEADLINE)
            reading.operator.no_more_splits()
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

    def test_an_order_overrides_the_delay(self):
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
        woken = []
        rig.operator.attach_wake_up(lambda: woken.append(True))
        rig.reader.steps.extend([MORE] * 1000)
        rig.operator.poll()
        assert 0 < rig.reader.polls < 1000
        assert woken, "and ask for it again"
        while rig.reader.steps:
            assert rig.operator.poll() is None
        assert rig.reader.polls <= 1000 + 1


class TestWakeUps:
    def test_one_thread_drives_several(self):
        event, rigs = threading.Event(), [Rig() for _ in range(3)]
        for rig in rigs:
            rig.operator.attach_wake_up(event.set)
            assert rig.operator.poll() is None
        event.clear()
        assert not event.wait(0)
        senders = [threading.Timer(0, rig.reader.script, [emit(n)]) for n, rig in enumerate(rigs)]
        for sender in senders:
            sender.start()
        got = set()
        limit = time.monotonic() + DEADLINE
        while len(got) < 3 and time.monotonic() < limit:
            event.wait(DEADLINE)
            event.clear()
            got |= {r for rig in rigs if (r := rig.operator.poll()) is not None}
        assert got == {0, 1, 2}
        for sender in senders:
            sender.join(DEADLINE)

    @pytest.mark.parametrize(
        "order",
        [
            lambda rig: rig.operator.add_splits(3, parts("a")),
            lambda rig: rig.operator.no_more_splits(),
            lambda rig: rig.operator.align(5),
            lambda rig: rig.operator.stop(),
            lambda rig: rig.operator.fail(RuntimeError()),
            lambda rig: rig.reader.script(NOTHING),
        ],
    )
    def test_every_order_wakes_once(self, order):
        rig, woken = Rig(), []
        rig.operator.attach_wake_up(lambda: woken.append(True))
        rig.drain()
        woken.clear()
        order(rig)
        order(rig)
        assert woken == [True]

    def test_a_wake_up_that_comes_late_is_called_at_once_when_there_is_something(self):
        rig, woken = Rig(), []
        rig.operator.add_splits(3, parts("a"))
        rig.operator.attach_wake_up(lambda: woken.append(True))
        assert woken == [True]

    def test_after_close_nobody_is_woken(self):
        rig, woken = Rig(), []
        rig.operator.attach_wake_up(lambda: woken.append(True))
        rig.drain()
        woken.clear()
        rig.operator.close()
        rig.operator.stop()
        assert woken == []

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
        assert mailbox.is_signalled
        mailbox.clear()
        mailbox.post(lambda: done.append(2))
        assert mailbox.is_signalled, "a post after the clearing is signalled again"
        while action := mailbox.take():
            action()
        assert done == [1, 2]
        assert not mailbox.has_mail
        mailbox.wait(None)

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
