"""A running job goes on with another number of tasks."""

import threading

import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate.errors import CheckpointError, OptionError, StreamError
from headgate.sink import FileSink
from headgate.stream import JobState, read_savepoint

ROWS = 6000


def counts(folder, *, rate=3000):
    return (
        stream_jobs.numbers(ROWS, rate=rate)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(folder / "out"), mode="append"), name="files")
    )


def tasks_of(query):
    return sum(task.role.startswith("counts") for task in query.status.tasks)


@pytest.mark.parametrize("workers", [0, 2], ids=["threads", "processes"])
def test_a_job_goes_on_with_more_and_fewer_tasks(tmp_path, workers):
    with counts(tmp_path).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2, workers=workers
    ) as query:
        ended = []
        waiting = threading.Thread(target=lambda: ended.append(query.await_termination(60)))
        waiting.start()
        for parallelism in (3, 1):
            wait_for_a_checkpoint(query)
            query.rescale(parallelism, workers=min(workers, 1))
            wait_until(lambda: tasks_of(query) == parallelism)  # noqa: B023 - called at once
            assert ended == [], "who waits for the end waits for that of the last tasks"
        assert query.await_termination(60)
        waiting.join(10)
        assert (query.state, ended) == (JobState.FINISHED, [True])
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_the_number_of_workers_is_that_of_tasks_also_when_a_job_starts_again(tmp_path):
    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1}
    for workers, tasks in ((2, 2), (0, 1)):
        with counts(tmp_path).start(workers=workers, **options) as query:
            wait_for_a_checkpoint(query)
            assert tasks_of(query) == tasks
            if workers:
                query.stop()
            assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_job_without_checkpoints_needs_a_savepoint(tmp_path):
    query = counts(tmp_path).start(parallelism=2)
    wait_until(lambda: query.status.rows)
    with pytest.raises(OptionError, match="needs a place"):
        query.rescale(3)
    with pytest.raises(OptionError):
        query.rescale(0)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(CheckpointError):
        query.rescale(3, savepoint=str(tmp_path / "taken"))
    assert query.state is JobState.RUNNING, "whatever was refused"
    query.rescale(3, savepoint=str(tmp_path / "savepoint"))
    assert sum(read_savepoint(str(tmp_path / "savepoint"))["count"]["value"].to_pylist()) > 0
    assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_start_that_fails_says_what_the_job_continues_from(tmp_path, monkeypatch):
    query = counts(tmp_path).start(checkpoint=str(tmp_path / "checkpoints"), interval=0.1)
    wait_for_a_checkpoint(query)

    def no_slots(*_):
        raise StreamError("no slots", remedy="more of them")

    with monkeypatch.context() as patch:
        patch.setattr("headgate.stream.api.job._local_workers", no_slots)
        with pytest.raises(StreamError) as caught:
            query.rescale(2)
    assert caught.value.remedy.startswith(
        "more of them · the job is stopped, and start(checkpoint="
    )
    assert query.state is JobState.STOPPED
    counts(tmp_path).run(checkpoint=str(tmp_path / "checkpoints"), parallelism=2)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_job_that_has_ended_cannot_go_on(tmp_path):
    query = counts(tmp_path, rate=None).start(checkpoint=str(tmp_path / "checkpoints"))
    assert query.await_termination(60)
    with pytest.raises(StreamError, match="has ended as finished"):
        query.rescale(2)
