"""Checkpoints of a gate: barriers are handled in the reader, between the records (spec 10.5)."""

import time

import pytest
from checkpoint_job import LONG, Job, barrier, now
from plane import Task, wait_until

import headgate as hg


@pytest.mark.parametrize("union", [False, True])
def test_spec_10_01_the_snapshot_is_taken_at_the_last_barrier_and_all_channels_go_on(link, union):
    job = Job(link, 3, union=union)
    one = barrier(1, body=b"where to")
    job.send(0, b"a")
    job.expect(b"a")
    job.send(1, one, b"behind 1")
    job.send(2, one)
    job.send(0, b"b")
    job.expect(b"a", b"b")
    job.send(0, one)
    job.expect(b"a", b"b", ("barrier", 1, "aligned"), ("complete", 1), b"behind 1")
    assert job.triggered == [one]
    job.got.clear()
    two = barrier(2)
    for writer in range(3):
        job.send(writer, two)
    job.expect(("barrier", 2, "aligned"), ("complete", 2))
    job.finish()
    assert list(job.reader) == []
    assert job.reader.is_finished


def test_the_channels_wait_until_the_task_has_its_snapshot(link):
    def take(event):
        if isinstance(event, hg.CheckpointBarrier):
            job.got.append("taken")

    job = Job(link, 1, on_event=take)
    job.send(0, b"a", barrier(1), b"b")
    job.finish()
    job.expect(b"a", "taken", b"b")


def test_without_a_snapshot_nothing_behind_the_barrier_is_read(link):
    def raises(event):
        if isinstance(event, hg.CheckpointBarrier):
            raise ZeroDivisionError
        assert isinstance(event, hg.CheckpointComplete)

    job = Job(link, 1, on_event=raises)
    job.send(0, b"a", barrier(1), b"b")
    assert next(job.reader) == b"a"
    with pytest.raises(ZeroDivisionError):
        next(job.reader)
    for _ in range(2):
        with pytest.raises(hg.errors.ClosedError, match="snapshot was not taken"):
            next(job.reader)
        assert not job.reader.is_finished


def test_an_exception_at_the_completion_loses_nothing(link):
    heard = []

    def raises(event):
        heard.append(type(event))
        if isinstance(event, hg.CheckpointComplete):
            raise ZeroDivisionError

    job = Job(link, 1, on_event=raises)
    job.send(0, barrier(1), b"b")
    with pytest.raises(ZeroDivisionError):
        next(job.reader)
    assert next(job.reader) == b"b"
    assert heard == [hg.CheckpointBarrier, hg.CheckpointComplete]


def test_spec_10_02_a_cancel_marker_ends_the_checkpoint_and_later_barriers_of_it_do_not_block(link):
    job = Job(link, 3)
    job.send(0, barrier(2), b"behind 0")
    job.send(2, barrier(2), b"behind 2")
    job.writers[1].broadcast_cancellation(2)
    job.expect_any(("aborted", 2), b"behind 0", b"behind 2")
    assert job.got[0] == ("aborted", 2)
    job.got.clear()
    job.writers[1].broadcast_cancellation(4)
    job.expect(("aborted", 4))
    job.send(2, barrier(4), b"c")
    job.send(0, barrier(4), b"d")
    job.expect_any(("aborted", 4), b"c", b"d")
    job.got.clear()
    for writer in range(3):
        job.send(writer, barrier(5))
    job.expect(("barrier", 5, "aligned"), ("complete", 5))


def test_spec_10_04_a_newer_checkpoint_subsumes_the_pending_one(link):
    job = Job(link, 2)
    job.begin(0, 1, b"behind 1", barrier(3))
    job.send(1, barrier(3), b"behind 3")
    job.expect(("aborted", 1), b"behind 1", ("barrier", 3, "aligned"), ("complete", 3), b"behind 3")


def test_spec_10_05_channels_that_have_ended_are_not_waited_for(link):
    job = Job(link, 4)
    for writer in (2, 1):
        job.writers[writer].finish()
    job.send(3, barrier(2))
    job.send(0, barrier(2))
    job.expect(("barrier", 2, "aligned"), ("complete", 2))
    job.writers[0].finish()
    job.send(3, barrier(4))
    job.expect(*job.got[:2], ("barrier", 4, "aligned"), ("complete", 4))
    job.finish()


def test_the_last_end_completes_a_checkpoint_before_the_input_ends(link):
    job = Job(link, 2)
    job.send(0, barrier(1))
    job.finish()
    got = list(job.reader)
    assert got == []
    assert job.got == [("barrier", 1, "aligned"), ("complete", 1)]


def test_without_checkpoints_after_the_end_a_channel_that_ends_aborts_the_checkpoint(link):
    job = Job(link, 2, after_finish=False)
    job.begin(0, 1, b"behind")
    job.writers[1].finish()
    job.expect(("aborted", 1), b"behind")


def test_an_unaligned_barrier_takes_the_snapshot_at_once_and_blocks_nothing(link):
    job = Job(link, 2)
    job.send(0, barrier(1, "unaligned"), b"a")
    job.expect(("barrier", 1, "unaligned"), b"a")
    job.send(1, b"b", barrier(1, "unaligned"))
    job.expect_any(("barrier", 1, "unaligned"), b"a", b"b", ("complete", 1))


def test_spec_10_07_after_the_timeout_the_snapshot_is_taken_without_the_other_barriers(link):
    job = Job(link, 2)
    job.send(0, barrier(1, "timeoutable", timeout=LONG))
    wait_until(lambda: (job.poll(), job.reader.next_timer_ms())[1] is not None)
    assert job.got == []
    assert job.reader.next_timer_ms() > now() + LONG // 2
    job.gate.abort_checkpoint(1, "enough")
    job.expect(("aborted", 1))
    assert job.reader.next_timer_ms() is None
    began = now()
    job.send(0, barrier(2, "timeoutable", timeout=100))
    reading = Task(next, job.reader)
    wait_until(lambda: len(job.got) == 2)
    assert job.got[1:] == [("barrier", 2, "unaligned")]
    assert now() >= began + 100
    job.send(1, b"x", barrier(2, "timeoutable", timeout=100), b"y")
    assert reading.result() == b"x"
    job.expect(("aborted", 1), ("barrier", 2, "unaligned"), ("complete", 2), b"y")


def test_a_barrier_that_timed_out_overtakes_the_records_before_it(environment):
    producer, consumer = (environment(same_host_link="off") for _ in range(2))
    job = Job(lambda: (producer, consumer), 1)
    for _ in range(4):
        job.send(0, b"x" * 1000)
    job.send(0, barrier(1, "timeoutable", timeout=1))
    time.sleep(0.05)
    job.expect(("barrier", 1, "unaligned"), ("complete", 1), *[b"x" * 1000] * 4)


def test_the_coordinator_gives_up_a_checkpoint_and_wakes_a_reader_that_waits(link):
    reasons = []
    job = Job(link, 2, on_event=reasons.append)
    job.send(0, barrier(1), b"behind")
    reading = Task(next, job.reader)
    with pytest.raises(AssertionError, match="hangs"):
        reading.join(0.2)
    job.gate.abort_checkpoint(1, "it took too long")
    assert reading.result() == b"behind"
    assert reasons == [hg.CheckpointAborted(1, "it took too long")]
    job.gate.abort_checkpoint(3, "before it began")
    job.gate.abort_checkpoint(1, "once more")
    job.send(1, barrier(3), b"c")
    assert next(job.reader) == b"c"
    assert reasons[1:] == [hg.CheckpointAborted(3, "before it began")]


def test_metrics_count_the_alignment(link):
    complete = []
    job = Job(link, 2, on_event=complete.append)
    job.send(1, b"before")
    job.expect(b"before")
    job.send(0, barrier(1))
    job.expect(b"before")
    job.send(1, b"during", barrier(1))
    job.expect(b"before", b"during")
    wait_until(lambda: (job.poll(), len(complete))[1] == 2)
    _, done = complete
    assert done.checkpoint_id == 1
    assert done.bytes_in_alignment in {0, 4 + len(b"during")}, "the barrier of 0 may arrive late"
    assert done.persisted_bytes == 0
    assert 0 <= done.alignment_duration < 20_000
    assert 0 <= done.start_delay < 20_000


def test_spec_10_08_a_barrier_of_an_older_checkpoint_only_has_its_channel_resumed(link):
    job = Job(link, 2)
    job.begin(0, 10, b"behind 10")
    job.send(1, barrier(5), b"x")
    job.expect(b"x")
    job.send(1, barrier(10))
    job.expect(b"x", ("barrier", 10, "timeoutable"), ("complete", 10), b"behind 10")


def test_spec_10_10_an_unaligned_barrier_of_the_pending_checkpoint_ends_the_alignment(link):
    job = Job(link, 3)
    job.begin(0, 1, b"behind")
    job.send(1, barrier(1, "unaligned"))
    job.expect(("barrier", 1, "unaligned"))
    job.send(2, b"late", barrier(1))
    job.expect_any(("barrier", 1, "unaligned"), ("complete", 1), b"late", b"behind")
    assert job.got.index(("complete", 1)) < job.got.index(b"behind")
    (kept,) = job.reader.take_channel_state(1)
    assert (kept[0], hg.decode_channel_state(kept[1], None)) == (2, [b"late"])


def test_spec_10_11_a_cancel_marker_behind_the_barrier_of_the_next_checkpoint_is_ignored(link):
    job = Job(link, 2)
    job.begin(0, 1, b"behind")
    job.send(1, barrier(2, "unaligned"))
    job.writers[1].broadcast_cancellation(1)
    job.expect(("aborted", 1), ("barrier", 2, "unaligned"), b"behind")
    job.send(0, barrier(2, "unaligned"))
    job.expect(*job.got[:3], ("complete", 2))


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("sent", [("unaligned", 0), ("timeoutable", 1)])
def test_barriers_that_overtake_records_are_handled_without_reading_any(link, union, sent):
    job = Job(link, 2, union=union)
    alignment, timeout = sent
    one = barrier(1, alignment, timeout=timeout)
    job.send(0, b"a", b"b" * 200_000, one, b"behind 0")
    job.send(1, b"c", one, b"behind 1")

    def heard(number):
        assert job.reader.poll_priority_event() is None
        return len(job.got) == number

    wait_until(lambda: heard(2))
    assert job.got == [("barrier", 1, "unaligned"), ("complete", 1)]
    assert job.reader.poll_priority_event("none") == "none"
    in_flight = dict(job.reader.take_channel_state(1))
    for writer, channel in zip(job.writers, (0, 1), strict=True):
        in_flight[channel] = in_flight.get(channel, b"") + dict(writer.take_channel_state(1)).get(
            0, b""
        )
    found = [hg.decode_channel_state(in_flight[channel], None) for channel in (0, 1)]
    assert found == [[b"a", b"b" * 200_000], [b"c"]]
    job.got.clear()
    job.expect_any(b"a", b"b" * 200_000, b"behind 0", b"c", b"behind 1")
