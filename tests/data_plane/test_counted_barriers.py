"""Checkpoints at least once: barriers are counted, and block nothing (spec 10.4)."""

import checkpoint_job
import pytest
from checkpoint_job import Job
from plane import wait_until

import headgate as hg


def barrier(number, **fields):
    return checkpoint_job.barrier(number, "at_least_once", **fields)


def complete(number):
    return ("barrier", number, "at_least_once"), ("complete", number)


@pytest.mark.parametrize("union", [False, True])
def test_spec_section_10_4_what_is_behind_a_barrier_is_read_before_the_snapshot(link, union):
    job = Job(link, 3, union=union)
    one = barrier(1, body=b"where to")
    job.send(0, b"a", one, b"behind 0")
    job.send(1, one, b"behind 1")
    job.expect_any(b"a", b"behind 0", b"behind 1")
    job.got.clear()
    job.send(2, b"c", one, b"behind 2")
    job.expect(b"c", *complete(1), b"behind 2")
    assert job.triggered == [one]
    job.finish()
    assert list(job.reader) == []


def test_spec_section_10_4_a_complete_checkpoint_drops_older_ones(link):
    job = Job(link, 2)
    job.send(0, barrier(1), barrier(2), barrier(3), b"a")
    job.expect(b"a")
    job.send(1, barrier(2), b"b")
    job.expect(b"a", *complete(2), b"b")
    job.send(1, barrier(3), b"c")
    job.expect(b"a", *complete(2), b"b", *complete(3), b"c")


def test_spec_section_10_4_a_cancel_marker_aborts_its_checkpoint(link):
    job = Job(link, 2)
    job.send(0, barrier(1), b"a")
    job.expect(b"a")
    job.writers[1].broadcast_cancellation(1)
    job.expect(b"a", ("aborted", 1))
    job.send(1, barrier(1), barrier(2), b"b")
    job.send(0, barrier(2))
    job.expect_any(b"a", ("aborted", 1), b"b", *complete(2))


def test_spec_section_10_4_the_end_of_a_channel_counts(link):
    job = Job(link, 2)
    job.send(0, barrier(1), barrier(2), b"a")
    job.expect(b"a")
    job.writers[1].finish()
    job.expect(b"a", *complete(2))
    job.send(0, barrier(3))
    job.expect(b"a", *complete(2), *complete(3))


def test_an_end_aborts_all_without_checkpoints_after_it(link):
    job = Job(link, 2, after_finish=False)
    job.send(0, barrier(1), barrier(2), b"a")
    job.expect(b"a")
    job.writers[1].finish()
    job.expect(b"a", ("aborted", 1), ("aborted", 2))


def test_a_checkpoint_that_the_coordinator_gave_up_never_completes(link):
    job = Job(link, 2)
    job.send(0, barrier(1), b"a")
    job.expect(b"a")
    job.gate.abort_checkpoint(1, "it took too long")
    job.expect(b"a", ("aborted", 1))
    job.send(1, barrier(1), b"b")
    job.expect(b"a", ("aborted", 1), b"b")
    job.gate.abort_checkpoint(2, "not begun")
    job.expect(b"a", ("aborted", 1), b"b", ("aborted", 2))
    for writer in (0, 1):
        job.send(writer, barrier(2), barrier(3))
    job.expect(b"a", ("aborted", 1), b"b", ("aborted", 2), *complete(3))


@pytest.mark.parametrize("alignment", ["aligned", "unaligned", "timeoutable"])
def test_a_barrier_that_would_block_or_overtake_is_refused_behind_one_that_is_counted(
    link, alignment
):
    job = Job(link, 2)
    timeout = checkpoint_job.LONG if alignment == "timeoutable" else 0
    for writer in (0, 1):
        job.send(writer, barrier(1))
    job.expect(*complete(1))
    job.send(0, b"a", checkpoint_job.barrier(2, alignment, timeout=timeout), b"b")
    with pytest.raises(hg.errors.HeadgateError, match="checkpoint 2 is for exactly once"):
        wait_until(lambda: job.poll() and False)


def test_a_barrier_that_is_only_counted_is_refused_where_each_record_counts_once(link):
    job = Job(link, 2)
    job.send(1, b"a", checkpoint_job.barrier(1))
    wait_until(lambda: job.poll() or job.got == [b"a"])
    job.send(0, b"b", barrier(2), b"c")
    with pytest.raises(hg.errors.HeadgateError, match="checkpoint 2 is for at least once"):
        wait_until(lambda: job.poll() and False)
    assert job.got == [b"a", b"b"]


@pytest.mark.parametrize("alignment", ["aligned", "at_least_once"])
def test_a_checkpoint_that_was_cancelled_before_any_barrier_never_begins(link, alignment):
    job = Job(link, 2)
    job.writers[0].broadcast_cancellation(1)
    wait_until(lambda: job.poll() or job.got == [("aborted", 1)])
    for writer in (0, 1):
        job.send(writer, checkpoint_job.barrier(1, alignment), checkpoint_job.barrier(2, alignment))
    job.expect(("aborted", 1), ("barrier", 2, alignment), ("complete", 2))
