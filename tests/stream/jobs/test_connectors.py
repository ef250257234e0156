"""A job from Kafka to files or a Delta table: each row once, although a function fails and the job starts anew."""

import threading
import time

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.kit.mock_kafka import Broker

from headgate.sink import FileSink
from headgate.sink.delta import DeltaSink
from headgate.source import RateSource
from headgate.source.kafka import KafkaOffsets, KafkaSource
from headgate.stream import stream

ROWS = 2000


def files(path):
    return FileSink(path), lambda: ds.dataset(path, exclude_invalid_files=True).to_table()


def delta(path):
    schema = pa.schema([("value", pa.binary())])
    return DeltaSink(path, schema=schema), lambda: DeltaTable(path).to_pyarrow_table()


class FailsOnce:
    """Passes values on, and fails once when it has seen some batches."""

    def __init__(self, after):
        self.left = after
        self.lock = threading.Lock()

    def __call__(self, batch):
        if batch.num_rows:
            time.sleep(0.01)
            with self.lock:
                self.left -= 1
                if self.left == 0:
                    raise RuntimeError("this batch fails once")
        return batch.select(["value"])


@pytest.fixture(scope="module", autouse=True)
def topic(tmp_path_factory):
    """The address of a mock broker, and a topic. What librdkafka and deltalake keep open starts here."""
    path = str(tmp_path_factory.mktemp("first"))
    write_deltalake(path, pa.table({"n": [1]}))
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1
    broker = Broker()
    yield broker.servers, broker.fill(ROWS)
    del broker


@pytest.mark.parametrize("kind", [files, delta])
def test_a_job_from_kafka_has_each_row_once_after_a_failure(topic, tmp_path, kind):
    source = KafkaSource(*topic, until=KafkaOffsets.latest(), batch_rows=20)
    sink, read = kind(str(tmp_path / "out"))
    fails = FailsOnce(60)
    job = stream(source).map(fails, schema=pa.schema([("value", pa.binary())])).sink(sink)
    job.run(parallelism=2, checkpoint=str(tmp_path / "checkpoints"), interval="100ms")
    assert fails.left < 0
    found = sorted(int(value[4:]) for value in read()["value"].to_pylist())
    assert found == list(range(ROWS))


def test_a_job_of_rows_at_a_rate_continues_at_its_position(tmp_path):
    source = RateSource(2000, rows=1000, start_time=0, batch_size=20)
    failed = []

    def fail_once(batch):
        if not failed and batch.num_rows and batch["id"][-1].as_py() > 500:
            failed.append(batch)
            raise RuntimeError("this batch fails once")
        return batch

    job = stream(source).map(fail_once).sink(FileSink(str(tmp_path / "out")))
    job.run(parallelism=2, checkpoint=str(tmp_path / "checkpoints"), interval="100ms")
    table = ds.dataset(str(tmp_path / "out")).to_table().sort_by("id")
    assert failed
    assert table["id"].to_pylist() == list(range(1000))
    assert table["time"].cast(pa.int64()).to_pylist() == [n * 1000 // 2000 for n in range(1000)]
