"""A failing source gives one error, which names reader, split and file, and loses no rows silently."""

import os
import signal
import sys
import threading
import time
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from tests.kit.parts import (
    SCHEMA,
    GiveOnRequest,
    PartReader,
    Parts,
    PartSplitReader,
    read_at_once,
)
from tests.kit.waiting import wait_until

from headgate.errors import SourceError
from headgate.source import RecordsBySplits
from headgate.source.files import FileSource
from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def cause_of(action):
    """Run an action that must fail; return the error's text without the driver's stack trace."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        action()
    return str(caught.value).split("\n\nDriver stacktrace")[0]


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


def test_a_file_deleted_between_listing_and_reading_is_named(spark, tmp_path):
    for number in range(2):
        pq.write_table(pa.table({"id": range(5)}), tmp_path / f"{number}.parquet")
    # The call lists the splits.
    out = exchange(
        FileSource(str(tmp_path)), by="id", map=list, parallelism=1, spark=spark, schema="id long"
    )
    (tmp_path / "1.parquet").unlink()
    text = cause_of(out.collect)
    assert text.count("[HG-6003]") == 1
    assert "1.parquet" in text.split("caused by")[0]


def test_an_exception_of_map_is_the_cause_with_its_traceback(spark):
    def wrong(batches):
        for _ in batches:
            raise ValueError("the map is wrong")
        yield from ()  # where a reader has no part

    job = {"by": "id", "map": wrong, "parallelism": 1, "schema": SCHEMA}
    text = cause_of(exchange(Parts(3), spark=spark, **job).collect)
    assert text.count("ValueError: the map is wrong") == 1
    assert "in wrong" in text


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


def test_readers_killed_each_time_among_their_batches_fail_the_job(spark):
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
    assert "exited unexpectedly" in cause_of(out.collect)


class StuckSplitReader(PartSplitReader):
    """Blocks in all parts but the first until it is woken."""

    def __init__(self, read):
        super().__init__(read)
        self.woken = threading.Event()

    def fetch(self):
        if not self.parts or self.parts[0].number == 0:
            return super().fetch()
        self.woken.wait()
        self.woken.clear()
        return RecordsBySplits({})

    def wake_up(self):
        self.woken.set()


class StuckReader(PartReader):
    """The reader with a :class:`StuckSplitReader`."""

    def split_reader(self, source, context):
        return StuckSplitReader(lambda part: source.read(part, context))


@pytest.mark.soak
def test_a_cancelled_job_ends_a_reader_whose_fetch_blocks_for_ever(spark, tmp_path):
    out = exchange(Parts(2, reader=StuckReader), by="id", parallelism=1, spark=spark)

    def cancel():
        tracker = spark.sparkContext.statusTracker()
        wait_until(lambda: list(tracker.getActiveJobsIds()), "the job")
        time.sleep(1.0)
        spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    text = cause_of(out.collect)
    thread.join()
    assert "cancel" in text.lower()
    assert "HG-" not in text


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

    def fail(self, where):
        if where == self.where:
            raise ValueError(f"wrong in {where}")


class FailsAtStart(FailingEnumerator):
    where = "start"


class FailsAtARequest(FailingEnumerator):
    where = "request"


@pytest.mark.parametrize("enumerator", [FailsAtStart, FailsAtARequest])
def test_an_enumerator_that_fails_is_the_cause_with_its_traceback(spark, enumerator):
    # The call lists the splits.
    with pytest.raises(SourceError) as caught:
        exchange(Parts(2, enumerator=enumerator), by="id", spark=spark)
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("[HG-6003] the enumerator of parts failed in ") == 1
    assert text.count('raise ValueError(f"wrong in {where}")') == 1
    assert f"ValueError: wrong in {enumerator.where}" in text


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
        (NumberReader, "emitted an int, not an Arrow batch"),
    ],
)
def test_a_reader_that_breaks_its_contract_is_named(spark, reader, said):
    text = cause_of(exchange(Parts(2, reader=reader), by="id", spark=spark).collect)
    assert text.count("[HG-6003]") == 1
    assert said in text


@pytest.mark.soak
def test_batches_without_a_declared_column_are_an_error(spark):
    schema = pa.schema([("id", pa.int64()), ("other", pa.string())])
    text = cause_of(exchange(Parts(1, schema=schema), by="id", spark=spark).collect)
    assert "[HG-4003]" in text
    assert "[HG-4003] the source returned no column" in text
    assert "'other'" in text
