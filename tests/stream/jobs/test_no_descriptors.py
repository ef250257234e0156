"""A streaming job whose process runs out of descriptors: it waits, and uses up no restart."""

import errno
import os

import pytest
from tests.kit import stream_jobs
from tests.kit.resources import no_descriptor_left
from tests.kit.waiting import wait_until

from headgate.control.cause import Cause
from headgate.errors import CheckpointError, SpillError
from headgate.sink import FileSink


class OpensFiles:
    """A map that opens a file for each batch, and counts how often it could not."""

    failures = 0

    def __call__(self, batch):
        try:
            with open(os.devnull):  # noqa: PTH123 - it may fail
                return batch
        except OSError:
            OpensFiles.failures += 1
            raise


def test_a_job_that_runs_out_of_descriptors_goes_on_when_there_are_some(tmp_path):
    count = 3000
    stream = stream_jobs.numbers(count, rate=1000).map(OpensFiles()).key_by("key")
    query = (
        stream.process(stream_jobs.Count, schema=stream_jobs.COUNTED)
        .sink(FileSink(str(tmp_path / "out")))
        .start(
            parallelism=2,
            checkpoint=str(tmp_path / "checkpoints"),
            # Long enough for a row to come before the next checkpoint, which could not be written either.
            interval=0.5,
            restarts=0,
            restart_delay=0.1,
        )
    )
    stream_jobs.wait_for_a_checkpoint(query)
    with no_descriptor_left():
        wait_until(lambda: OpensFiles.failures or query.state.is_over)
        wait_until(lambda: query.status.restarts or query.state.is_over)
    assert query.await_termination(60)
    assert query.status.restarts > 0
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), count)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_the_cause_of_an_error_tells_a_shortage_of_descriptors(number):
    def raised(error, cause=None):
        try:
            raise error from cause
        except OSError as caught:
            return Cause.from_fields(Cause.of(caught).fields())

    plain = OSError(number, os.strerror(number), "/a")
    found = [
        raised(plain),
        raised(CheckpointError("the checkpoint cannot be written"), plain),
        raised(SpillError(f"/a cannot be written: {plain.strerror} (os error {number})")),
    ]
    assert {cause.is_shortage for cause in found} == {number != errno.ENOSPC}
