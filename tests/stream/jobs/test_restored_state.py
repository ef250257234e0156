"""Jobs that start from a savepoint or a checkpoint, and declare other states than the job that took it."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import FileSink
from headgate.stream import (
    ProcessFunction,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    read_savepoint,
)
from headgate.stream.job.store import CheckpointStore

ROWS = 4000
RATE = 2500


def start(stream, tmp_path, **options):
    settings = {"parallelism": 2, "checkpoint": str(tmp_path / "checkpoints"), "interval": 0.05}
    sink = FileSink(str(tmp_path / "out"))
    return stream.sink(sink, name="files").start(**{**settings, **options})


class Sums(ProcessFunction):
    """Has a state by a name and a reduction, and one that it declares when it is needed."""

    def __init__(self, name="total", reduce="sum", late="late"):
        self.name, self.reduce, self.late = name, reduce, late

    def open(self, context):
        self.total = context.get_state(ReducingStateDescriptor(self.name, self.reduce, pa.int64()))

    def process(self, batch, context):
        if pc.any(pc.greater(batch["id"], ROWS // 8)).as_py():
            late = context.get_state(ValueStateDescriptor(self.late, pa.int64()))
            late.put(pa.array([1] * context.keys.num_rows))
        self.total.add(batch["id"])
        totals = self.total.get().take(pa.array(context.rows))
        return pa.RecordBatch.from_arrays(
            [batch["key"], batch["id"], totals], schema=stream_jobs.COUNTED
        )


def sums(**options):
    keyed = stream_jobs.numbers(ROWS, rate=RATE).key_by("key")
    return keyed.process(Sums(**options), schema=stream_jobs.COUNTED, name="sums")


def stopped(tmp_path):
    query = start(sums(), tmp_path)
    wait_for_a_checkpoint(query)
    return query.stop(savepoint=str(tmp_path / "savepoint"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "sum"}, "state that the function does not declare: total"),
        ({"reduce": "max"}, "declared with the reduction max"),
        ({"reduce": pc.max_element_wise}, "declared with the reduction a function"),
    ],
)
def test_state_of_another_name_or_reduction_is_refused(tmp_path, changed, said):
    stopped(tmp_path)
    again = start(sums(**changed), tmp_path, restart_delay=0.01, restarts=1)
    with pytest.raises(errors.HeadgateError, match=said) as found:
        again.await_termination(60)
    assert found.value.code in {"HG-4007", "HG-6001"}


def test_state_that_is_not_declared_is_dropped_on_request(tmp_path):
    stopped(tmp_path)
    again = start(sums(name="sum"), tmp_path, allow_dropped_state=True)
    wait_for_a_checkpoint(again)
    folder = again.stop(savepoint=str(tmp_path / "second"))
    assert set(read_savepoint(folder)) <= {"sum", "late"}


def test_state_that_is_declared_when_it_is_needed_is_kept(tmp_path):
    folder = stopped(tmp_path)
    again = start(sums(late="other"), tmp_path, restarts=0)
    assert again.await_termination(60)
    rows = stream_jobs.rows_of(tmp_path / "out").to_pylist()
    greatest = {
        key: max(r["count"] for r in rows if r["key"] == key) for key in range(stream_jobs.KEYS)
    }
    assert greatest == {
        key: sum(range(key, ROWS, stream_jobs.KEYS)) for key in range(stream_jobs.KEYS)
    }
    assert "total" in read_savepoint(folder)


def test_a_savepoint_beside_checkpoints_is_refused_unless_it_is_said_which_counts(tmp_path):
    folder = stopped(tmp_path)
    query = start(sums(), tmp_path)
    wait_for_a_checkpoint(query)
    query.cancel()
    log = tmp_path / "checkpoints" / "log"
    before = {one.name: one.read_bytes() for one in log.iterdir()}
    with pytest.raises(errors.OptionError, match="has checkpoint"):
        start(sums(), tmp_path, savepoint=folder)
    with pytest.raises(errors.OptionError, match="restore='newest' is unknown"):
        start(sums(), tmp_path, savepoint=folder, restore="newest")
    with pytest.raises(errors.CheckpointError, match="is no savepoint"):
        start(sums(), tmp_path, savepoint=str(tmp_path / "none"), restore="savepoint")
    assert {one.name: one.read_bytes() for one in log.iterdir()} == before


@pytest.mark.parametrize("restore", ["savepoint", "latest"])
def test_a_job_starts_from_what_restore_names(tmp_path, restore):
    folder = stopped(tmp_path)
    query = start(sums(), tmp_path)
    wait_for_a_checkpoint(query)
    query.cancel()
    newest = CheckpointStore(str(tmp_path / "checkpoints")).newest()
    # Sinks know the job by its name, and that it was further than at the savepoint.
    name = "again" if restore == "savepoint" else None
    again = start(sums(), tmp_path, savepoint=folder, restore=restore, name=name)
    wait_until(lambda: again._master.attempt is not None)
    restored = again._master.attempt.restored
    again.cancel()
    at_savepoint = CheckpointStore.savepoint(folder).checkpoint
    assert newest > at_savepoint
    assert restored.checkpoint == (at_savepoint if restore == "savepoint" else newest)
    assert (restored.base == folder) is (restore == "savepoint")
