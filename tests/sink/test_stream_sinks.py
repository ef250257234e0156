"""Sinks of streaming jobs: the rows of complete checkpoints are visible, each once, whatever crashes."""

import pytest
from tests.kit import sinks, stream_sinks

from headgate.errors import OptionError, SinkError, UserFunctionError
from headgate.sink import (
    CommitterContext,
    FileSink,
    FunctionSink,
    SinkWriter,
    WriterContext,
    WriteResult,
    write,
)


def job(path, faults=None, **options):
    def make_sink(faults):
        return sinks.faulty(path, faults, **options) if faults else FileSink(path, **options)

    return stream_sinks.StreamJob(make_sink, lambda: sinks.rows(path), faults)


def committed(path, numbers=((0, 5),), name=stream_sinks.JOB):
    """Write a checkpoint for each range; return the last checkpoint and its committables."""
    sink = FileSink(path)
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    writer = sink.create_writer(WriterContext(name, 0, 1, "a"))
    for checkpoint, (start, stop) in enumerate(numbers, 1):
        writer.write(sinks.numbers(start, stop, stop)[0])
        found = [writer.prepare_commit(checkpoint)]
        committer.commit(checkpoint, found)
    return checkpoint, found


@pytest.mark.soak
def test_a_crash_at_every_step_of_the_file_sink(tmp_path):
    def check(path, crashes):
        assert sinks.left(path) == [], crashes

    def make(path, faults):
        return job(path, faults, max_rows_per_file=2)

    assert len(stream_sinks.crash_everywhere(make, tmp_path, 5, check)) > 40


@stream_sinks.any_script(examples=60, actions=25, steps=400)
def test_any_job_with_a_crash_at_any_step(tmp_path_factory, script, at):
    path = tmp_path_factory.mktemp("stream")
    stream_sinks.play(job(path, sinks.Faults(at)), script)
    assert sinks.left(path) == []


def test_a_function_gets_each_row_at_least_once():
    repeated = 0
    for number in range(1, 60):
        seen = []
        sink = FunctionSink(lambda batch, seen=seen: seen.extend(batch["n"].to_pylist()))
        calls = stream_sinks.StreamJob(
            lambda faults, sink=sink: sink if faults else FunctionSink(print),
            lambda seen=seen: seen,
            sinks.Faults(number),
        )
        stream_sinks.play(calls, stream_sinks.SCRIPT)
        assert set(seen) >= set(range(calls.position))
        repeated += len(seen) > len(set(seen))
    assert repeated > 10


def test_an_exception_of_the_function_fails_the_write():
    sink = FunctionSink(lambda batch: 1 / 0)
    writer = sink.create_writer(WriterContext("job", 0, 1, "a"))
    writer.write(sinks.numbers(0, 1)[0].slice(1))
    with pytest.raises(
        UserFunctionError, match="the function of sink job failed: ZeroDivisionError"
    ):
        writer.write(sinks.numbers(0, 1)[0])
    with pytest.raises(OptionError, match="cannot be called"):
        FunctionSink(3)


def test_a_batch_takes_any_sink():
    seen = []
    result = write(
        sinks.numbers(0, 9), FunctionSink(lambda batch: seen.extend(batch["n"].to_pylist()))
    )
    assert result == WriteResult(9, 0, ())
    assert seen == list(range(9))


def test_committables_without_a_committer_are_an_error():
    class Writer(SinkWriter):
        def write(self, batch):
            pass

        def prepare_commit(self, checkpoint_id):
            return b"rows"

    class Forgetful(FunctionSink):
        def create_writer(self, context, schema=None):
            return Writer()

    with pytest.raises(SinkError, match="no committer makes the rows of checkpoint 0 visible"):
        write(sinks.numbers(0, 9), Forgetful(print))


def test_a_job_that_continues_from_before_its_last_commit_is_refused(path):
    committed(path, [(0, 5), (5, 8)])
    for restored in (None, 1):
        again = FileSink(path, mode="append").create_committer(CommitterContext(stream_sinks.JOB))
        with pytest.raises(SinkError, match="would write again"):
            again.start(restored)
    FileSink(path).create_committer(CommitterContext(stream_sinks.JOB)).start(2)


def test_the_mode_is_about_the_first_start(path):
    write(sinks.numbers(0, 3), FileSink(path))
    with pytest.raises(SinkError, match="holds data already"):
        FileSink(path).create_committer(CommitterContext("new")).start(None)
    FileSink(path, mode="append").create_committer(CommitterContext("new")).start(None)
    with pytest.raises(OptionError, match="overwrite"):
        FileSink(path, mode="overwrite").create_committer(CommitterContext("new")).start(None)


def test_committables_of_others_are_refused(path):
    checkpoint, found = committed(path)
    committer = FileSink(path).create_committer(CommitterContext("other"))
    with pytest.raises(SinkError, match="another job"):
        committer.commit(checkpoint, found)
    mine = FileSink(path).create_committer(CommitterContext(stream_sinks.JOB))
    with pytest.raises(SinkError, match="later checkpoint"):
        mine.commit(-1, found)
    with pytest.raises(SinkError, match="no committable"):
        mine.commit(1, [b"{}"])


def test_known_committables_survive_the_cleaning(path):
    sink = FileSink(path)
    committer = sink.create_committer(CommitterContext(stream_sinks.JOB))
    committer.start(None)
    made = []
    for index in range(2):
        context = WriterContext(stream_sinks.JOB, index, 2, "a")
        writer = sink.create_writer(context)
        writer.write(sinks.numbers(index * 4, index * 4 + 4)[0])
        made.append(writer.prepare_commit(1))
    committer.abort_unknown(made[:1])
    committer.commit(1, made[:1])
    assert sinks.rows(path) == [0, 1, 2, 3]
    assert sinks.left(path) == []


def test_the_numbers_of_checkpoints_grow(path):
    writer = FileSink(path).create_writer(WriterContext("job", 0, 1, "a", 7))
    assert writer.prepare_commit(9) is None
    with pytest.raises(SinkError, match="in the order of their numbers"):
        writer.prepare_commit(9)


def test_jobs_do_not_know_each_other(path):
    committed(path, name="a")
    sink = FileSink(path, mode="append")
    other = sink.create_committer(CommitterContext("b"))
    other.start(None)
    with sink.create_writer(WriterContext("b", 0, 1, "x")) as writer:
        writer.write(sinks.numbers(5, 9)[0])
        staged = writer.prepare_commit(1)
    sink.create_committer(CommitterContext("a")).abort_unknown([])
    other.commit(1, [staged])
    assert sinks.rows(path) == list(range(9))
