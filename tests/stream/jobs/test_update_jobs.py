"""Jobs whose results change: over several exchanges, through failures, and at their ends."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs

from headgate._changes import CHANGE_TYPE, change_signs
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import Aggregate, stream

ROWS = 3000


def sums_of(table):
    """Return how often each row is there after all changes, without regard to their order."""
    counts = Counter()
    names = [name for name in table.column_names if name != CHANGE_TYPE]
    signs = change_signs(table).to_pylist()
    for row, sign in zip(table.select(names).to_pylist(), signs, strict=True):
        counts[tuple(row.values())] += sign
    return {row: count for row, count in counts.items() if count}


def groups(rows):
    """Return the ids of each key of stream_jobs.numbers()."""
    return {key: range(key, rows, stream_jobs.KEYS) for key in range(stream_jobs.KEYS)}


@pytest.mark.parametrize("alignment", ["aligned", "unaligned"])
def test_aggregates_of_updates_have_each_row_once_after_a_failure(tmp_path, alignment):
    totals = (
        stream_jobs.numbers(ROWS, rate=ROWS * 2)
        .key_by("key")
        .aggregate(Aggregate("count"), Aggregate("sum", "id"), every="5ms", name="totals")
    )
    by_count = (
        totals.map(stream_jobs.FailOnce(tmp_path / "failed", 40), name="fails")
        .key_by("count")
        .aggregate(
            Aggregate("count", name="keys"), Aggregate("sum", "sum_id", "ids"), name="counts"
        )
    )
    totals.sink(FileSink(tmp_path / "totals"), name="files")
    query = by_count.sink(FileSink(tmp_path / "counts"), name="more-files").start(
        parallelism=2, checkpoint=str(tmp_path / "checkpoints"), interval=0.05, alignment=alignment
    )
    assert query.await_termination(60)
    assert query.status.restarts == 1
    ids = groups(ROWS)
    assert sums_of(stream_jobs.rows_of(tmp_path / "totals")) == {
        (key, len(of), sum(of)): 1 for key, of in ids.items()
    }
    lengths = Counter(map(len, ids.values()))
    assert sums_of(stream_jobs.rows_of(tmp_path / "counts")) == {
        (length, keys, sum(sum(of) for of in ids.values() if len(of) == length)): 1
        for length, keys in lengths.items()
    }


def test_the_first_rows_of_updates_continue_from_a_savepoint_with_another_parallelism(tmp_path):
    def job(rate):
        return (
            stream_jobs.numbers(ROWS, rate=rate)
            .key_by("key")
            .aggregate(Aggregate("count"), Aggregate("max", "id"), every="5ms", name="totals")
            .map(with_parity, name="parity")
            .key_by("parity")
            .top(2, by="max_id", rank="place", name="top")
            .sink(FileSink(tmp_path / "top", mode="append"), name="files")
        )

    query = job(ROWS / 10).start(parallelism=1, checkpoint=str(tmp_path / "one"), interval=0.05)
    stream_jobs.wait_for_a_checkpoint(query)
    query.stop(savepoint=str(tmp_path / "savepoint"))
    job(ROWS).run(
        parallelism=3, savepoint=str(tmp_path / "savepoint"), checkpoint=str(tmp_path / "two")
    )
    last = sorted((of[-1], key, len(of)) for key, of in groups(ROWS).items())
    expected = {}
    for parity in (0, 1):
        best = [of for of in last if of[1] % 2 == parity][:-3:-1]
        for place, (most, key, count) in enumerate(best, 1):
            expected[key, count, most, parity, place] = 1
    assert sums_of(stream_jobs.rows_of(tmp_path / "top")) == expected


def with_parity(batch):
    return batch.add_column(batch.num_columns - 1, "parity", pc.bit_wise_and(batch["key"], 1))


def test_what_waits_is_there_at_the_end_of_a_job_that_a_later_run_continues(tmp_path):
    (tmp_path / "in").mkdir()
    for run in range(2):
        table = pa.table({"key": [1, 2, 1], "n": [run, 1, 2]})
        pa.parquet.write_table(table, tmp_path / "in" / f"{run}.parquet")
        from headgate.source import FileSource

        totals = stream(FileSource(f"{tmp_path}/in/*.parquet")).key_by("key")
        totals = totals.aggregate(Aggregate("sum", "n"), every="1 hour", name="totals")
        totals.sink(FileSink(tmp_path / "out", mode="append"), name="files").run(
            checkpoint=str(tmp_path / "checkpoints"), until="now"
        )
    assert sums_of(stream_jobs.rows_of(tmp_path / "out")) == {(1, 5): 1, (2, 2): 1}


def test_duplicates_are_counted_and_late_rows_are_in_their_output():
    source = NumberSequenceSource(0, 100, splits=1, batch_size=1)

    def times(batch):
        ids = batch["id"]
        at = pc.if_else(pc.equal(ids, 99), 0, pc.multiply(ids, 1000))
        return pa.record_batch({"id": ids, "key": pc.bit_wise_and(ids, 1), "at": at})

    strategy = stream_jobs.WatermarkStrategy.for_punctuated(
        lambda batch, _: int(batch["id"][0].as_py()) * 1000
    )
    rows = stream(source, watermarks=strategy, parallelism=1).map(times).key_by("key")
    first = rows.deduplicate(within="10 seconds", time="at", name="first")
    got, late = [], []
    first.side_output("late").sink(FunctionSink(late.append))
    query = first.sink(FunctionSink(got.append)).start(parallelism=1)
    assert query.await_termination(60)
    assert [i for batch in got for i in batch["id"].to_pylist()] == [
        i for ten in range(0, 100, 10) for i in (ten, ten + 1)
    ]
    assert [i for batch in late for i in batch["id"].to_pylist()] == [99]
    assert query.status.dropped == {"first": {"numDuplicatesDropped": 79}}
