"""Runs of a job with map_async(memo=), one after the other: a run calls only for what has changed."""

import os
import signal
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until
from tests.stream.jobs.test_call_jobs import KEYED, Ledger, counts

from headgate.sink import FileSink
from headgate.source import FileSource
from headgate.stream import stream

ROWS = 1500
ANSWERS = pa.schema([("id", pa.int64()), ("answer", pa.string())])


class Texts:
    """A service that notes in a file what it was asked for."""

    def __init__(self, folder):
        self.file = folder / "ledger"

    async def __call__(self, row):
        with self.file.open("a") as file:
            file.write(f"{row['text']}\n")
        return {"id": row["id"], "answer": row["text"].upper()}

    def calls(self):
        return Counter(self.file.read_text().splitlines())


@pytest.mark.parametrize("memo", ["text", lambda row: row["text"]])
def test_a_later_run_calls_only_for_what_has_changed(tmp_path, memo):
    service, inputs = Texts(tmp_path), tmp_path / "in"
    inputs.mkdir()
    rows = 0
    for number, (texts, parallelism) in enumerate([(40, 2), (40, 3), (50, 1)]):
        # Each text twice, in two files, which other tasks read than before.
        for half in range(2):
            columns = {"id": range(rows, rows + texts), "text": [f"t{at}" for at in range(texts)]}
            pq.write_table(pa.table(columns), inputs / f"{number}-{half}.parquet")
            rows += texts
        called = stream(FileSource(inputs), name="texts").map_async(
            service, schema=ANSWERS, memo=memo, name="calls"
        )
        query = called.sink(FileSink(str(tmp_path / "out"), mode="append"), name="files").start(
            checkpoint=str(tmp_path / "checkpoints"), until="now", parallelism=parallelism
        )
        assert query.await_termination(60)
        assert service.calls() == dict.fromkeys([f"t{at}" for at in range(texts)], 1)
        figures = query.status.metrics["calls"]
        assert figures["calls"]["value"] == [40, 0, 10][number]
        assert figures["memo_hits"]["value"] == 2 * texts - [40, 0, 10][number]
    results = pq.read_table(tmp_path / "out")
    assert results.num_rows == rows
    assert sorted(results["id"].to_pylist()) == list(range(rows))
    expected = Counter(f"T{at}" for texts in (40, 40, 50) for at in range(texts) for _ in range(2))
    assert Counter(results["answer"].to_pylist()) == expected


@pytest.mark.parametrize("is_keyed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_killed_worker_and_a_rescale_lose_no_row(tmp_path, is_keyed):
    ledger = Ledger(tmp_path)
    ledger.open.touch()
    rows = stream_jobs.numbers(600, rate=1500)
    if is_keyed:
        rows = rows.key_by("key")
    called = rows.map_async(ledger, schema=KEYED, in_flight=8, ordered=is_keyed, memo="id")
    with counts(tmp_path, called).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.1, parallelism=2, workers=2
    ) as query:
        wait_for_a_checkpoint(query)
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
        wait_for_a_checkpoint(query)
        query.rescale(3)
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 600)


@pytest.mark.parametrize("is_driver", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_calls_that_no_checkpoint_has_are_not_paid_again(tmp_path, is_driver):
    ledger = Ledger(tmp_path)
    ledger.open.touch()

    def start():
        rows = stream_jobs.numbers(ROWS, rate=1500)
        called = rows.map_async(ledger, schema=KEYED, in_flight=8, memo="id", name="calls")
        return counts(tmp_path, called).start(
            checkpoint=str(tmp_path / "checkpoints"), interval=60, parallelism=2, workers=2
        )

    query = start()
    wait_until(lambda: len(ledger.calls()) > ROWS // 2)
    if is_driver:
        query.cancel()
        query = start()
    else:
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
    with query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    calls = Counter(row for row, _ in ledger.calls())
    assert calls.keys() == {*range(ROWS)}
    assert sum(calls.values()) <= ROWS + 2 * 8, "only what was in the air"
    assert query.status.metrics["calls"]["calls_recovered"]["value"] >= ROWS // 2 - 2 * 8
