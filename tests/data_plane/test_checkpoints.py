"""Contract of gates with checkpoints: barriers are handled in the reader, between the records (spec 10.5).

The rules for their order are tested in rust_core/protocol/tests/checkpoint.
"""

import pytest
from checkpoint_job import LONG, Job, barrier, now
from plane import Task, wait_until

import headgate as hg


@pytest.mark.parametrize("union", [False, True])
def test_the_snapshot_is_taken_at_the_last_barrier_and_all_channels_go_on(link, union):
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


def test_without_checkpoints_after_the_end_a_channel_that_ends_aborts_the_checkpoint(link):
    job = Job(link, 2, after_finish=False)
    job.begin(0, 1, b"behind")
    job.writers[1].finish()
    job.expect(("aborted", 1), b"behind")


def test_after_the_timeout_the_snapshot_is_taken_without_the_other_barriers(link):
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


@pytest.mark.parametrize("union", [False, True])
def test_at_least_once_what_is_behind_a_barrier_is_read_before_the_snapshot(link, union):
    job = Job(link, 3, union=union)
    one = barrier(1, "at_least_once", body=b"where to")
    job.send(0, b"a", one, b"behind 0")
    job.send(1, one, b"behind 1")
    job.expect_any(b"a", b"behind 0", b"behind 1")
    job.got.clear()
    job.send(2, b"c", one, b"behind 2")
    job.expect(b"c", ("barrier", 1, "at_least_once"), ("complete", 1), b"behind 2")
    assert job.triggered == [one]
    job.finish()
    assert list(job.reader) == []


@pytest.mark.parametrize("alignment", ["aligned", "unaligned", "timeoutable"])
def test_a_barrier_that_would_block_or_overtake_is_refused_behind_one_that_is_counted(
    link, alignment
):
    job = Job(link, 2)
    timeout = LONG if alignment == "timeoutable" else 0
    for writer in (0, 1):
        job.send(writer, barrier(1, "at_least_once"))
    job.expect(("barrier", 1, "at_least_once"), ("complete", 1))
    job.send(0, b"a", barrier(2, alignment, timeout=timeout), b"b")
    with pytest.raises(hg.errors.HeadgateError, match="checkpoint 2 is for exactly once"):
        wait_until(lambda: job.poll() and False)


def test_a_barrier_that_is_only_counted_is_refused_where_each_record_counts_once(link):
    job = Job(link, 2)
    job.send(1, b"a", barrier(1))
    wait_until(lambda: job.poll() or job.got == [b"a"])
    job.send(0, b"b", barrier(2, "at_least_once"), b"c")
    with pytest.raises(hg.errors.HeadgateError, match="checkpoint 2 is for at least once"):
        wait_until(lambda: job.poll() and False)
    assert job.got == [b"a", b"b"]
