"""Runs that read what is new and then end, one after the other with the same checkpoints: a job for cron."""

from __future__ import annotations

import random
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import stream_jobs
from tests.kit.contexts import FakeEnumeratorContext
from tests.kit.waiting import wait_until

from headgate.errors import CheckpointError, OptionError, SourceError, StreamError
from headgate.sink import FileSink, FunctionSink
from headgate.source import FileSource, NumberSequenceSource, RateSource, WatermarkStrategy
from headgate.source.files.enumerator import FileEnumerator, FileWork
from headgate.source.files.split import FileCheckpoint
from headgate.stream import Aggregate, JobState, TumblingWindow, read_savepoint, stream

MINUTE = 60_000
FORMS = {
    "one listing": {},
    "a folder that grows": {"discovery_interval": "50ms"},
}
TIMES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("moment")


class Clicks:
    """Files of clicks, one for each minute."""

    def __init__(self, folder):
        self.folder, self.chance, self.minutes = folder / "in", random.Random(5), 0
        self.folder.mkdir()

    def come(self, files):
        for _ in range(files):
            first = self.minutes * MINUTE
            at = sorted(self.chance.randrange(first, first + MINUTE) for _ in range(200))
            user = [self.chance.randrange(3) for _ in at]
            table = pa.table({"user": user, "moment": pa.array(at, pa.timestamp("ms"))})
            pq.write_table(table, self.folder / f"{self.minutes}.parquet")
            self.minutes += 1


@pytest.fixture
def clicks(tmp_path):
    return Clicks(tmp_path)


def counts(folder, **options):
    """Return a job that counts the clicks of each user so far, with state by key."""
    rows = stream(FileSource(folder / "in", **options), name="clicks")
    return (
        rows.map(lambda b: pa.record_batch({"id": b["moment"].cast("int64"), "key": b["user"]}))
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(folder / "out"), mode="append"))
    )


@pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_run_takes_what_is_new_and_state_carries_over(tmp_path, clicks, options, parallelism):
    checkpoint = str(tmp_path / "checkpoints")
    for files in (3, 2, 0, 1):
        clicks.come(files)
        query = counts(tmp_path, **options).start(
            checkpoint=checkpoint, until="now", parallelism=parallelism
        )
        assert query.await_termination(60)
        assert (query.state, query.status.notices) == (JobState.FINISHED, ())
        found = stream_jobs.rows_of(tmp_path / "out")
        assert len(found) == clicks.minutes * 200
        most = duckdb.sql("select key, max(count) from found group by all order by all").fetchall()
        wanted = f"select user, count(*) from '{clicks.folder}/*.parquet' group by all order by all"
        assert most == duckdb.sql(wanted).fetchall()


def minutes(folder, **options):
    return (
        stream(FileSource(folder / "in", **options), watermarks=TIMES, name="clicks")
        .key_by("user")
        .window(
            TumblingWindow(timedelta(minutes=1)),
            time="moment",
            aggregates=[Aggregate("count", name="clicks")],
            name="minutes",
        )
        .sink(FileSink(str(folder / "out"), mode="append"))
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_stay_open_from_run_to_run(tmp_path, clicks, parallelism):
    """Each run closes all windows but those of the last file; the last run, without until=, the rest."""
    checkpoint, emitted = str(tmp_path / "checkpoints"), []
    for until in ("now", "now", "now", None):
        clicks.come(0 if until is None else 4)
        minutes(tmp_path).run(checkpoint=checkpoint, until=until, parallelism=parallelism)
        table = stream_jobs.rows_of(tmp_path / "out").select(["user", "window_start", "clicks"])
        emitted.append(sorted(zip(*table.to_pydict().values(), strict=True)))
    wanted = duckdb.sql(
        f"""select user, date_trunc('minute', moment), count(*)
        from '{clicks.folder}/*.parquet' group by all order by all"""
    ).fetchall()
    assert emitted[-1] == wanted
    for run, found in enumerate(emitted[:-1], 1):
        assert set(found) <= set(wanted)
        assert len({start for _, start, _ in found}) == 4 * run - 1


def test_a_finished_job_says_so(tmp_path, clicks, caplog):
    clicks.come(1)
    checkpoint = str(tmp_path / "checkpoints")
    counts(tmp_path).run(checkpoint=checkpoint)
    clicks.come(1)
    with caplog.at_level("INFO", "headgate.stream"):
        query = counts(tmp_path).start(checkpoint=checkpoint)
        query.await_termination()
    (notice,) = query.status.notices
    assert 'until="now"' in notice
    assert [one.levelname for one in caplog.records if notice in one.message] == ["INFO"]
    assert len(stream_jobs.rows_of(tmp_path / "out")) == 200


def test_the_last_checkpoint_of_a_finished_job_has_no_keyed_state(tmp_path, clicks):
    clicks.come(1)
    checkpoint = str(tmp_path / "checkpoints")
    query = counts(tmp_path).start(checkpoint=checkpoint, interval="1ms", parallelism=2)
    assert query.await_termination(60)
    assert query.status.checkpoints[-1].bytes == 0
    assert not list((tmp_path / "checkpoints").rglob("*.arrow")), "and replaces those before it"
    clicks.come(1)
    with pytest.raises(CheckpointError, match="has no state of counts"):
        counts(tmp_path).start(checkpoint=checkpoint, until="now")
    counts(tmp_path).run(checkpoint=checkpoint, until="now", allow_dropped_state=True)
    rows = stream_jobs.rows_of(tmp_path / "out")
    assert len(rows) == 400, "the first run has remembered its file"
    assert max(rows["count"].to_pylist()) < 200, "and the second begins without its counts"
    clicks.come(1)
    counts(tmp_path).run(checkpoint=checkpoint, until="now")
    assert len(stream_jobs.rows_of(tmp_path / "out")) == 600, "this one has all state"


def test_a_savepoint_at_the_end_keeps_the_state(tmp_path):
    savepoint = str(tmp_path / "savepoint")
    job = (
        stream_jobs.numbers(400_000, rate=4000)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="counts")
        .sink(FileSink(str(tmp_path / "out")))
    )
    query = job.start(checkpoint=str(tmp_path / "checkpoints"))
    wait_until(lambda: query.status.rows)
    query.stop(savepoint=savepoint, drain=True)
    assert query.state is JobState.FINISHED
    counted = sum(read_savepoint(savepoint)["count"]["value"].to_pylist())
    assert counted == len(stream_jobs.rows_of(tmp_path / "out")) > 0


def test_a_job_goes_on_without_end_and_back(tmp_path, clicks):
    checkpoint = str(tmp_path / "checkpoints")
    clicks.come(2)
    counts(tmp_path, discovery_interval="20ms").run(checkpoint=checkpoint, until="now")
    with counts(tmp_path, discovery_interval="20ms").start(
        checkpoint=checkpoint, interval="50ms"
    ) as query:
        clicks.come(2)
        wait_until(lambda: sum(t.rows for t in query.status.tasks[:1]) == 400)
        query.stop()
        assert query.state is JobState.STOPPED
    clicks.come(1)
    counts(tmp_path, discovery_interval="20ms").run(checkpoint=checkpoint, until="now")
    assert len(stream_jobs.rows_of(tmp_path / "out")) == 1000


def test_a_run_that_fails_goes_on_where_it_was(tmp_path, clicks):
    checkpoint = str(tmp_path / "checkpoints")
    for files in (4, 3):
        clicks.come(files)
        fail = stream_jobs.FailOnce(tmp_path / f"failed {files}", 300)
        (
            stream(FileSource(tmp_path / "in", batch_rows=50), name="clicks")
            .map(fail)
            .sink(FileSink(str(tmp_path / "out"), mode="append"))
        ).run(checkpoint=checkpoint, until="now", interval="1ms", restart_delay=0)
        assert (tmp_path / f"failed {files}").exists()
    out, inside = stream_jobs.rows_of(tmp_path / "out"), stream_jobs.rows_of(tmp_path / "in")
    order = [("moment", "ascending"), ("user", "ascending")]
    assert out.sort_by(order).equals(inside.sort_by(order))


def refused(source, **options):
    job = stream(source, name="rows").sink(FileSink("nowhere", mode="append"))
    with pytest.raises((OptionError, StreamError)) as caught:
        job.start(**{"until": "now", "checkpoint": "nowhere", **options})
    return caught.value


def test_what_cannot_be_done_is_refused_at_the_call(tmp_path, clicks):
    assert "RateSource(10) has no end" in str(refused(RateSource(10)))
    ends = NumberSequenceSource(0, 9)
    assert "until='later' is unknown" in str(refused(ends, until="later"))
    assert "needs a folder" in str(refused(ends, checkpoint=None))
    clicks.come(1)
    windows = (
        stream(FileSource(tmp_path / "in"), name="clicks")
        .key_by("user")
        .window(
            TumblingWindow(timedelta(minutes=1)),
            time="moment",
            aggregates=[Aggregate("count", name="clicks")],
        )
    )
    job = windows.sink(FileSink(str(tmp_path / "out")))
    with pytest.raises(StreamError, match="leaves windows open"):
        job.start(until="now", checkpoint=str(tmp_path / "checkpoints"))


def test_a_checkpoint_that_does_not_say_what_was_read():
    work = FileWork(list, lambda *_: [], None, None, lists_again=True)
    with pytest.raises(SourceError, match="does not say which files were read"):
        FileEnumerator(FakeEnumeratorContext(), FileCheckpoint(listed=True, made=3), work)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_for_a_window_that_an_earlier_run_has_closed_are_late(tmp_path, clicks, parallelism):
    checkpoint = str(tmp_path / "checkpoints")
    clicks.come(3)
    minutes(tmp_path).run(checkpoint=checkpoint, until="now", parallelism=parallelism)
    before = stream_jobs.rows_of(tmp_path / "out")
    at = pa.array([MINUTE // 2] * 7 + [5 * MINUTE], pa.timestamp("ms"))
    pq.write_table(pa.table({"user": [0] * 8, "moment": at}), clicks.folder / "9.parquet")
    query = minutes(tmp_path).start(checkpoint=checkpoint, until="now", parallelism=4 - parallelism)
    query.await_termination()
    assert query.status.dropped == {"minutes": {"numLateRecordsDropped": 7}}
    windows = stream_jobs.rows_of(tmp_path / "out").select(["user", "window_start"])
    assert windows.num_rows > before.num_rows
    assert windows.group_by(windows.column_names).aggregate([]).num_rows == windows.num_rows


def test_a_source_that_ends_by_itself_says_that_it_reads_nothing_again(tmp_path):
    found = []
    for _ in range(2):
        query = (
            stream(NumberSequenceSource(0, 9))
            .sink(FunctionSink(len))
            .start(checkpoint=str(tmp_path / "checkpoints"), until="now")
        )
        assert query.await_termination(60)
        found.append([one for one in query.status.notices if "ends by itself" in one])
    assert found[0] == []
    assert len(found[1]) == 1


def test_checkpoints_of_another_source_are_refused(tmp_path, caplog):
    def start(end, **options):
        made = stream(NumberSequenceSource(0, end)).sink(FunctionSink(len))
        return made.start(checkpoint=str(tmp_path / "checkpoints"), **options)

    assert start(10).await_termination(60)
    words = r"source-1 was NumberSequenceSource\(0, 10\), and is NumberSequenceSource\(0, 20\) now"
    with pytest.raises(CheckpointError, match=words):
        start(20)
    query = start(20, restore="latest")
    assert query.await_termination(60)
    (notice,) = [one for one in query.status.notices if "as restore='latest' allows" in one]
    assert any(
        record.levelname == "WARNING" and notice in record.getMessage() for record in caplog.records
    )
