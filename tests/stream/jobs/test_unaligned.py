"""Checkpoints whose barriers overtake rows: the rows in flight belong to them, and are handled once."""

import time

import pyarrow as pa
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import FileSink
from headgate.stream.runtime.channel_state import ChannelState, InFlight
from headgate.stream.state.files import SnapshotFolder

ROWS = 6000


class Slow:
    """Passes batches on, so slowly that those behind it wait."""

    def __call__(self, batch):
        time.sleep(0.01)
        return batch


def crowded(rows, **failure):
    """Return a job whose exchanges are full: the last stage is slower than the others."""
    keyed = (
        stream_jobs.numbers(rows)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
    )
    if failure:
        keyed = keyed.map(stream_jobs.FailOnce(**failure), name="fails")
    return keyed.key_by("id").map(Slow(), name="slow")


def start(stream, tmp_path, **options):
    settings = {
        "parallelism": 2,
        "checkpoint": str(tmp_path / "checkpoints"),
        "interval": 0.03,
        "options": {"memory": "2m", "segment_size": "32k"},
    }
    sink = FileSink(str(tmp_path / "out"))
    return stream.sink(sink, name="files").start(**{**settings, **options})


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"alignment": "unaligned"},
        {"alignment": "timeoutable", "aligned_timeout": 0.005},
        {"alignment": "timeoutable", "aligned_timeout": 10},
    ],
    ids=["unaligned", "soon", "late"],
)
def test_a_failure_loses_and_repeats_no_row_in_flight(tmp_path, workers, options):
    stream = crowded(ROWS, file=tmp_path / "failed", after=ROWS // 4)
    query = start(stream, tmp_path, workers=workers, **options)
    assert query.await_termination(60)
    assert query.status.restarts == 1
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 4)])
def test_rows_in_flight_are_handled_once_with_another_parallelism(tmp_path, before, after):
    query = start(crowded(ROWS), tmp_path, parallelism=before, alignment="unaligned")
    wait_until(lambda: any(one.in_flight for one in complete(query)) or query.state.is_over)
    query.cancel()
    query = start(crowded(ROWS), tmp_path, parallelism=after, alignment="unaligned")
    assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)


def complete(query):
    return [one for one in query.status.checkpoints if one.status == "complete"]


def in_flight(query):
    return [one.in_flight for one in complete(query)]


def test_rows_in_flight_are_counted_and_their_files_deleted(tmp_path):
    query = start(crowded(10**8), tmp_path, alignment="unaligned")
    wait_for_a_checkpoint(query, 4)
    query.stop()
    assert any(one.in_flight for one in query.status.checkpoints)
    files = list((tmp_path / "checkpoints").rglob("*.channels"))
    # The last checkpoint is aligned; files of older ones may be deleted after it.
    assert len(files) <= 3 * 4


def test_a_barrier_overtakes_what_an_aligned_one_waits_for(tmp_path):
    times = {}
    for alignment in ("aligned", "unaligned"):
        query = start(
            crowded(10**9),
            tmp_path / alignment,
            alignment=alignment,
            options={"memory": "4m", "segment_size": "32k"},
        )
        # The memory may not be full at the first ones.
        wait_for_a_checkpoint(query, 1)
        if alignment == "unaligned":
            wait_until(lambda query=query: any(in_flight(query)))
        times[alignment] = in_flight(query)
        query.cancel()
    assert any(times["unaligned"])
    assert not any(times["aligned"])


def test_rows_for_all_tasks_cannot_be_overtaken(tmp_path):
    everywhere = stream_jobs.numbers(10).broadcast().map(Slow())
    with pytest.raises(errors.StreamError, match="cannot overtake rows of keys"):
        start(everywhere, tmp_path, alignment="unaligned")


def test_a_damaged_file_of_rows_in_flight_is_refused(tmp_path):
    folder = SnapshotFolder(str(tmp_path))
    state = ChannelState(inputs=[(0, b"abc")], outputs=[(1, 0, b"de"), (1, 2, b"f")])
    found = state.write(folder, 7)
    assert found["inputs"] == [[0, 0, 3]]
    assert found["outputs"] == [[1, 0, 3, 2], [1, 2, 5, 1]]
    assert ChannelState().write(folder, 7) is None
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"abcdeX")
    part = {"operator": "sum", "keys": [], "files": [[*found["file"], 0, 3]]}
    rows = InFlight([part]).rows({"sum": pa.schema([("a", pa.int64())])}, range(1), 1)
    with pytest.raises(errors.SnapshotError, match="is damaged"):
        list(rows)
