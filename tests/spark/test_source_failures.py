"""A failing source gives one error, which names reader, split and file, and loses no rows silently."""

import os
import signal
import socket
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from tests.driver.source_actors import (
    SCHEMA,
    GiveOnRequest,
    GreetingReader,
    PartReader,
    Parts,
    StuckReader,
    all_ids,
    once,
    read_at_once,
    wait_for,
)
from tests.faults.patience import wait_until

from headgate.source import SourceEvent
from headgate.source.files import FileSource
from headgate.spark import exchange, last_stats
from headgate.spark.driver import application

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def cause_of(action):
    """Run an action that must fail; return the error's text without the driver's stack trace."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        action()
    return str(caught.value).split("\n\nDriver stacktrace")[0]


def wait_for_the_end(spark):
    """Wait until no run is left; return the statistics of the last one."""
    server = application.of(spark.sparkContext)._server
    wait_until(lambda: not server.coordinator.live_runs, "runs")
    wait_until(lambda: not server.coordinator.members, "tasks")
    return last_stats()


def fetchers_left(spark, folder):
    """Return the pids of all workers, and of those that still have a thread of a reader."""

    def look(batches):
        for batch in batches:
            if batch.num_rows:
                once(folder, f"{batch['id'][0]}-{batch['id'][0]}")
        # The four tasks run at the same time, so each has another worker.
        wait_for(lambda: len(list(folder.iterdir())) == 4, "the other tasks")
        left = any(t.name.startswith("headgate") for t in threading.enumerate())
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "left": [left]})

    folder.mkdir()
    rows = spark.range(0, 4, 1, 4).mapInArrow(look, "pid long, left boolean").collect()
    return {row["pid"] for row in rows}, {row["pid"] for row in rows if row["left"]}


def test_a_corrupt_row_group_names_split_and_file(spark, tmp_path):
    path = tmp_path / "broken.parquet"
    table = pa.table({"id": range(4_000)})
    pq.write_table(table, path, row_group_size=1_000, use_dictionary=False)
    page = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[page : page + 16] = bytes(16)
    path.write_bytes(data)
    text = cause_of(exchange(FileSource(str(tmp_path)), by="id", spark=spark).collect)
    assert text.count("[HG-6003]") == 1
    assert "broken.parquet" in text.split("caused by")[0]
    assert wait_for_the_end(spark).error == "HG-6003"


def test_a_file_deleted_between_listing_and_reading_is_named(spark, tmp_path):
    for number in range(2):
        pq.write_table(pa.table({"id": range(5)}), tmp_path / f"{number}.parquet")

    def delete(batches):
        for batch in batches:
            # The only reader is at its first split, so it has not opened the second file.
            (tmp_path / "1.parquet").unlink(missing_ok=True)
            yield batch

    out = exchange(
        FileSource(str(tmp_path)), by="id", map=delete, parallelism=1, spark=spark, schema="id long"
    )
    text = cause_of(out.collect)
    assert text.count("[HG-6003]") == 1
    assert "1.parquet" in text.split("caused by")[0]


def test_an_exception_of_map_is_the_cause_with_its_traceback(spark):
    def wrong(batches):
        for _ in batches:
            raise ValueError("the map is wrong")
        yield from ()  # where a reader has no part

    text = cause_of(exchange(Parts(3), by="id", map=wrong, spark=spark, schema=SCHEMA).collect)
    assert text.count("[HG-6001] map raised ValueError: the map is wrong") == 1
    assert "in wrong" in text
    assert wait_for_the_end(spark).error == "HG-6001"


@pytest.mark.soak
def test_a_map_that_swallows_the_sources_error_loses_no_rows_silently(spark):
    def read(part, context):
        if part.number == 1:
            raise OSError("the disk is gone")
        yield from read_at_once(part, context)

    def swallow(batches):
        try:
            yield from batches
        except Exception:  # noqa: BLE001 - as users do
            return

    out = exchange(Parts(3, read), by="id", map=swallow, parallelism=1, spark=spark, schema=SCHEMA)
    text = cause_of(out.collect)
    assert text.count("[HG-6003]") == 1
    assert "part 1" in text.split("caused by")[0]
    assert "OSError: the disk is gone" in text


def test_a_reader_killed_before_its_first_batch_is_tried_again(spark, tmp_path):
    def read(part, context):
        if context.index_of_subtask == 1 and once(tmp_path, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for((tmp_path / "killed").exists, "the other reader")
        yield from read_at_once(part, context)

    out = exchange(Parts(6, read), by="id", num_partitions=1, parallelism=2, spark=spark)
    if spark.sparkContext.master.startswith("local-cluster"):
        assert sorted(row["id"] for row in out.collect()) == all_ids(6)
        assert wait_for_the_end(spark).state == "done"
        return
    # On local[4] Spark retries no task.
    text = cause_of(out.collect)
    assert text.count("[HG-3001] a reader is gone without a goodbye") == 1
    assert f"reader 1 of source 'parts' on {socket.gethostname()}" in text
    assert "unfinished splits: part " in text


def test_a_reader_killed_once_among_its_batches_costs_time_and_no_rows(spark, tmp_path):
    def kill_once(batches):
        for batch in batches:
            yield batch
            if once(tmp_path, "killed"):
                os.kill(os.getpid(), signal.SIGKILL)

    # With a second reader, the consumer might have yielded rows, which local[4] cannot repeat.
    out = exchange(
        Parts(6),
        by="id",
        map=kill_once,
        num_partitions=1,
        parallelism=1,
        spark=spark,
        schema=SCHEMA,
    )
    assert sorted(row["id"] for row in out.collect()) == all_ids(6)
    stats = wait_for_the_end(spark)
    assert (stats.state, stats.epoch) == ("done", 1)


def test_readers_killed_each_time_among_their_batches_fail_the_run_by_name(spark):
    def kill_this_process(batches):
        for batch in batches:
            yield batch
            os.kill(os.getpid(), signal.SIGKILL)

    out = exchange(
        Parts(6),
        by="id",
        map=kill_this_process,
        num_partitions=1,
        parallelism=2,
        spark=spark,
        schema=SCHEMA,
    )
    text = cause_of(out.collect)
    assert "HG-3001" in text or "exited unexpectedly" in text
    stats = wait_for_the_end(spark)
    assert (stats.state, stats.error) == ("failed", "HG-3001")
    assert f"of source 'parts' on {socket.gethostname()}" in stats.error_summary
    assert "unfinished splits: part " in stats.error_summary


def test_a_limit_ends_a_reader_whose_fetch_blocks_for_ever(spark, tmp_path):
    def many_rows(part, context):
        # PySpark writes to the JVM in blocks of 64 KiB; fewer rows would stay in its buffer.
        numbers = [[part.number] * 20_000, range(20_000), [context.index_of_subtask] * 20_000]
        yield pa.RecordBatch.from_arrays([pa.array(n, pa.int64()) for n in numbers], schema=SCHEMA)

    def with_pid(batches):
        for batch in batches:
            pid = pa.array([os.getpid()] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([batch["id"], pid], ["id", "pid"])

    out = exchange(
        Parts(2, many_rows, reader=StuckReader),
        by="id",
        map=with_pid,
        schema="id long, pid long",
        num_partitions=1,
        parallelism=1,
        spark=spark,
    )
    rows = out.limit(3).collect()
    assert len(rows) == 3
    stats = wait_for_the_end(spark)
    assert (stats.state, stats.error) == ("done", "")
    workers, left = fetchers_left(spark, tmp_path / "tasks")
    assert not left
    assert {row["pid"] for row in rows} <= workers


@pytest.mark.soak
def test_a_cancelled_job_ends_a_reader_whose_fetch_blocks_for_ever(spark, tmp_path):
    out = exchange(Parts(2, reader=StuckReader), by="id", parallelism=1, spark=spark)
    server = application.of(spark.sparkContext)._server

    def cancel():
        wait_for(lambda: any(run.splits_done for run in server.coordinator.live_runs), "a split")
        spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    text = cause_of(out.collect)
    thread.join()
    assert "cancel" in text.lower()
    assert "HG-" not in text
    assert wait_for_the_end(spark).state == "cancelled"
    _, left = fetchers_left(spark, tmp_path / "tasks")
    assert not left


class FailingEnumerator(GiveOnRequest):
    """Fails in the callback that ``where`` names."""

    where = ""

    def start(self):
        super().start()
        self.fail("start")

    def handle_split_request(self, subtask_id, requester_hostname):
        if not self.left:
            self.fail("request")
        super().handle_split_request(subtask_id, requester_hostname)

    def handle_source_event(self, subtask_id, event):
        self.fail("event")

    def fail(self, where):
        if where == self.where:
            raise ValueError(f"wrong in {where}")


class FailsAtStart(FailingEnumerator):
    where = "start"


class FailsAtARequest(FailingEnumerator):
    where = "request"


class FailsAtAnEvent(FailingEnumerator):
    where = "event"


@pytest.mark.soak
@pytest.mark.parametrize("enumerator", [FailsAtStart, FailsAtARequest, FailsAtAnEvent])
def test_an_enumerator_that_fails_is_the_cause_with_its_traceback(spark, enumerator):
    reader = GreetingReader if enumerator is FailsAtAnEvent else PartReader
    out = exchange(Parts(2, enumerator=enumerator, reader=reader), by="id", spark=spark)
    text = cause_of(out.collect)
    assert text.count("[HG-6003] the enumerator of parts failed in ") == 1
    assert text.count('raise ValueError(f"wrong in {where}")') == 1
    assert f"ValueError: wrong in {enumerator.where}" in text
    assert wait_for_the_end(spark).error == "HG-6003"
    # The thread that all enumerators share still works.
    out = exchange(Parts(2), by="id", num_partitions=1, spark=spark)
    assert sorted(row["id"] for row in out.collect()) == all_ids(2)


class LargeEventReader(PartReader):
    """Sends an event that is too large."""

    def start(self):
        event = SourceEvent("large", bytes(40_000))
        self.context.send_source_event_to_coordinator(event)


class NumberReader(PartReader):
    """Emits numbers instead of batches."""

    def split_reader(self, source, context):
        reader = super().split_reader(source, context)
        reader.read = lambda part: iter([part.number])
        return reader


@pytest.mark.soak
@pytest.mark.parametrize(
    ("reader", "said"),
    [
        (LargeEventReader, "event 'large' with 40000 bytes"),
        (NumberReader, "emitted an int, not an Arrow batch"),
    ],
)
def test_a_reader_that_breaks_its_contract_is_named(spark, reader, said):
    text = cause_of(exchange(Parts(2, reader=reader), by="id", spark=spark).collect)
    assert text.count("[HG-6003]") == 1
    assert said in text
    assert wait_for_the_end(spark).error == "HG-6003"


@pytest.mark.soak
def test_batches_without_a_declared_column_are_an_error(spark):
    schema = pa.schema([("id", pa.int64()), ("other", pa.string())])
    text = cause_of(exchange(Parts(1, schema=schema), by="id", spark=spark).collect)
    assert "[HG-4003]" in text
    assert "[HG-4003] the source returned no column" in text
    assert "'other'" in text
