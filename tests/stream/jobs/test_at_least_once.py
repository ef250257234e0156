"""Jobs whose barriers are only counted: no row is missing after a failure, and some may come twice."""

import json
from collections import Counter

import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.stream.jobs.test_recovery import counted
from tests.stream.jobs.test_unaligned import crowded, start

from headgate.sink import FunctionSink
from headgate.source import RateSource, WatermarkStrategy
from headgate.stream import Aggregate, TumblingWindow, stream

ROWS = 6000


def check(table, count):
    """Check that no number is missing, and that no key was counted less often than it has numbers."""
    ids = Counter(table["id"].to_pylist())
    assert ids.keys() == set(range(count))
    most = Counter()
    for row in table.select(["key", "count"]).to_pylist():
        most[row["key"]] = max(most[row["key"]], row["count"])
    assert all(
        most[key] >= len(range(key, count, stream_jobs.KEYS)) for key in range(stream_jobs.KEYS)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_loses_no_row(tmp_path, workers):
    stream = crowded(ROWS, file=tmp_path / "failed", after=ROWS // 4)
    query = start(stream, tmp_path, workers=workers, alignment="at_least_once")
    assert query.await_termination(60)
    assert query.status.restarts == 1
    (ended,) = query.status.failures
    assert (ended.attempt, ended.error[:4]) == (1, "HG-6")
    assert "map" in ended.summary
    check(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_without_a_failure_each_row_counts_once(tmp_path):
    query = start(crowded(ROWS), tmp_path, alignment="at_least_once")
    assert query.await_termination(60)
    assert any(one.status == "complete" for one in query.status.checkpoints)
    assert not any(one.in_flight for one in query.status.checkpoints)
    assert not list((tmp_path / "checkpoints").rglob("*.channels"))
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def test_a_savepoint_and_a_stop_leave_out_no_row(tmp_path):
    query = start(counted(ROWS), tmp_path, alignment="at_least_once")
    wait_for_a_checkpoint(query)
    query.stop(savepoint=str(tmp_path / "savepoint"))
    again = start(
        counted(ROWS),
        tmp_path,
        alignment="at_least_once",
        checkpoint=str(tmp_path / "others"),
        savepoint=str(tmp_path / "savepoint"),
        parallelism=3,
    )
    assert again.await_termination(60)
    check(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.parametrize(("alignment", "is_kept"), [("aligned", True), ("at_least_once", False)])
def test_only_snapshots_without_later_rows_keep_their_watermark(tmp_path, alignment, is_kept):
    """With it, rows that come again after a restart would be late for windows that have them already."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    windows = (
        stream(RateSource(20_000, start_time=0), watermarks=strategy)
        .key_by("id")
        .window(
            TumblingWindow("1 second"), time="time", aggregates=[Aggregate("count")], name="windows"
        )
    )
    query = windows.sink(FunctionSink([].append)).start(
        parallelism=2, checkpoint=str(tmp_path), interval=0.05, alignment=alignment
    )
    wait_for_a_checkpoint(query, 12)
    query.cancel()
    newest = max((tmp_path / "log").glob("*.json"))
    mark = json.loads(newest.read_text())["operators"]["windows"]["watermark"]
    assert (mark is not None) == is_kept


def test_a_job_may_change_its_mode(tmp_path):
    query = start(crowded(2 * ROWS), tmp_path, alignment="unaligned")
    wait_for_a_checkpoint(query, 1)
    query.cancel()
    again = start(crowded(2 * ROWS), tmp_path, alignment="at_least_once")
    assert again.await_termination(60)
    check(stream_jobs.rows_of(tmp_path / "out"), 2 * ROWS)
