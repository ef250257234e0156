"""Jobs over tables that grow: each row of each version counts once, also if a worker is killed; a job for cron."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.kit import stream_jobs
from tests.source.test_iceberg import Warehouse

from headgate.sink import FileSink
from headgate.source.delta import DeltaSource
from headgate.stream import JobState, stream


def numbers(first, count=20):
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def written(folder):
    return sorted(stream_jobs.rows_of(folder / "out")["n"].to_pylist())


@pytest.fixture(scope="module", autouse=True)
def _runtime(tmp_path_factory):
    """Start what deltalake keeps open, before leftovers of a test are looked for."""
    path = str(tmp_path_factory.mktemp("first"))
    write_deltalake(path, pa.table({"n": [1]}))
    DeltaTable(path).scan().read_all()


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_worker_that_is_killed_loses_and_repeats_no_row(tmp_path, how):
    path, workers = str(tmp_path / "table"), 2 if how == "exit" else 0
    write_deltalake(path, numbers(0))

    def job():
        rows = stream(DeltaSource(path, discovery_interval="20ms", batch_rows=5), name="table")
        fails = stream_jobs.FailOnce(tmp_path / "failed", 50, how)
        return rows.map(fails, name="fails").sink(FileSink(str(tmp_path / "out"), mode="append"))

    checkpoint = str(tmp_path / "checkpoints")
    with job().start(
        checkpoint=checkpoint, interval="20ms", restart_delay=0, parallelism=2, workers=workers
    ) as query:
        for version in range(1, 8):
            write_deltalake(path, numbers(20 * version), mode="append")
            stream_jobs.wait_for_a_checkpoint(query, 2 * version)
            if version == 5:
                DeltaTable(path).optimize.compact()
        query.stop()
        assert query.state is JobState.STOPPED
    job().run(checkpoint=checkpoint, until="now", parallelism=1)
    assert (tmp_path / "failed").exists()
    assert written(tmp_path) == list(range(160))


def test_each_run_takes_the_new_snapshots(tmp_path):
    warehouse = Warehouse(tmp_path).make(numbers(0))
    for run in range(3):
        rows = stream(warehouse.source(), name="table")
        job = rows.sink(FileSink(str(tmp_path / "out"), mode="append"))
        query = job.start(checkpoint=str(tmp_path / "checkpoints"), until="now", parallelism=2)
        assert query.await_termination(60)
        assert written(tmp_path) == list(range(40 * run + 20))
        for part in (20, 40):
            warehouse.table.append(numbers(40 * run + part))
    warehouse.close()
