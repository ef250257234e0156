"""Sinks of streaming jobs: the rows of complete checkpoints are visible, each once, whatever crashes."""

import pytest
import sink_kit as kit
import stream_kit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.errors import OptionError, SinkError, UserFunctionError
from headgate.sink import FileSink, FunctionSink, StreamWriterContext, write


def job(path, faults=None, **options):
    def make_sink(faults):
        return kit.faulty(path, faults, **options) if faults else FileSink(path, **options)

    return stream_kit.StreamJob(make_sink, lambda: kit.rows(path), faults)


def committed(path, numbers=((0, 5),), name=stream_kit.JOB):
    """Write a checkpoint for each range; return the last checkpoint and its committables."""
    sink = FileSink(path)
    committer = sink.create_stream_committer(name)
    committer.start(None)
    writer = sink.create_stream_writer(StreamWriterContext(name, 0, 1, "a"))
    for checkpoint, (start, stop) in enumerate(numbers, 1):
        writer.write(kit.numbers(start, stop, stop)[0])
        found = [writer.prepare_commit(checkpoint)]
        committer.commit(checkpoint, found)
    return checkpoint, found


@pytest.mark.soak
def test_a_crash_at_every_step_of_the_file_sink(tmp_path):
    faults = kit.Faults()
    whole = job(tmp_path / "counted", faults, max_rows_per_file=2)
    stream_kit.play(whole, stream_kit.SCRIPT)
    assert whole.crashes == []
    assert len(faults.seen) > 200
    crashed = set()
    for number in range(1, len(faults.seen) + 1, 5):
        path = tmp_path / f"crash-{number}"
        crashing = job(path, kit.Faults(number), max_rows_per_file=2)
        stream_kit.play(crashing, stream_kit.SCRIPT)
        assert kit.left(path) == [], crashing.crashes
        crashed.update(crashing.crashes)
    assert len(crashed) > 40


ACTION = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("abort_checkpoint"), st.integers(0, 2)),
    st.just(("repeat",)),
    st.tuples(st.just("restart"), st.integers(1, 3)),
)


@given(st.lists(ACTION, max_size=25), st.integers(1, 400))
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_job_with_a_crash_at_any_step(tmp_path_factory, script, at):
    path = tmp_path_factory.mktemp("stream")
    crashing = job(path, kit.Faults(at))
    stream_kit.play(crashing, script)
    assert kit.left(path) == []


def test_a_function_gets_each_row_at_least_once():
    repeated = 0
    for number in range(1, 60):
        seen = []
        sink = FunctionSink(lambda batch, seen=seen: seen.extend(batch["n"].to_pylist()))
        calls = stream_kit.StreamJob(
            lambda faults, sink=sink: sink if faults else FunctionSink(print),
            lambda seen=seen: seen,
            kit.Faults(number),
        )
        stream_kit.play(calls, stream_kit.SCRIPT)
        assert set(seen) >= set(range(calls.position))
        repeated += len(seen) > len(set(seen))
    assert repeated > 10


def test_an_exception_of_the_function_fails_the_write():
    sink = FunctionSink(lambda batch: 1 / 0)
    writer = sink.create_stream_writer(StreamWriterContext("job", 0, 1, "a"))
    writer.write(kit.numbers(0, 1)[0].slice(1))
    with pytest.raises(
        UserFunctionError, match="the function of sink job failed: ZeroDivisionError"
    ):
        writer.write(kit.numbers(0, 1)[0])
    with pytest.raises(OptionError, match="cannot be called"):
        FunctionSink(3)


def test_a_job_that_continues_from_before_its_last_commit_is_refused(path):
    committed(path, [(0, 5), (5, 8)])
    for restored in (None, 1):
        again = FileSink(path, mode="append").create_stream_committer(stream_kit.JOB)
        with pytest.raises(SinkError, match="would write again"):
            again.start(restored)
    FileSink(path).create_stream_committer(stream_kit.JOB).start(2)


def test_the_mode_is_about_the_first_start(path):
    write(kit.numbers(0, 3), FileSink(path))
    with pytest.raises(SinkError, match="holds data already"):
        FileSink(path).create_stream_committer("new").start(None)
    FileSink(path, mode="append").create_stream_committer("new").start(None)
    with pytest.raises(OptionError, match="overwrite"):
        FileSink(path, mode="overwrite").create_stream_committer("new").start(None)


def test_committables_of_others_are_refused(path):
    checkpoint, found = committed(path)
    committer = FileSink(path).create_stream_committer("other")
    with pytest.raises(SinkError, match="another job"):
        committer.commit(checkpoint, found)
    mine = FileSink(path).create_stream_committer(stream_kit.JOB)
    with pytest.raises(SinkError, match="later checkpoint"):
        mine.commit(-1, found)
    with pytest.raises(SinkError, match="no committable"):
        mine.commit(1, [b"{}"])


def test_known_committables_survive_the_cleaning(path):
    sink = FileSink(path)
    committer = sink.create_stream_committer(stream_kit.JOB)
    committer.start(None)
    made = []
    for index in range(2):
        context = StreamWriterContext(stream_kit.JOB, index, 2, "a")
        writer = sink.create_stream_writer(context)
        writer.write(kit.numbers(index * 4, index * 4 + 4)[0])
        made.append(writer.prepare_commit(1))
    committer.abort_unknown(made[:1])
    committer.commit(1, made[:1])
    assert kit.rows(path) == [0, 1, 2, 3]
    assert kit.left(path) == []


def test_the_numbers_of_checkpoints_grow(path):
    writer = FileSink(path).create_stream_writer(StreamWriterContext("job", 0, 1, "a", 7))
    assert writer.prepare_commit(9) is None
    with pytest.raises(SinkError, match="in the order of their numbers"):
        writer.prepare_commit(9)


def test_jobs_do_not_know_each_other(path):
    committed(path, name="a")
    sink = FileSink(path, mode="append")
    other = sink.create_stream_committer("b")
    other.start(None)
    with sink.create_stream_writer(StreamWriterContext("b", 0, 1, "x")) as writer:
        writer.write(kit.numbers(5, 9)[0])
        staged = writer.prepare_commit(1)
    sink.create_stream_committer("a").abort_unknown([])
    other.commit(1, [staged])
    assert kit.rows(path) == list(range(9))


def test_names_must_fit_into_a_path():
    for job, attempt in (("../up", "a"), ("job", "a/b")):
        with pytest.raises(OptionError, match="is no valid name"):
            StreamWriterContext(job, 0, 1, attempt)
