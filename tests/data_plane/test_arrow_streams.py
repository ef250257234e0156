"""A reader as an Arrow stream: other libraries read it, and get its errors."""

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import OptionError, ProducerFailedError

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})
BATCHES = [
    pa.record_batch([list(range(i, i + 100)), [f"row {j}" for j in range(i, i + 100)]], SCHEMA)
    for i in range(0, 1000, 100)
]


@pytest.fixture
def environment():
    return hg.ShuffleEnvironment(memory="4m")


@pytest.fixture
def partition(environment):
    return environment.create_result_partition(1)


@pytest.fixture
def read(environment, partition):
    def read(**options):
        gate = environment.create_input_gate([partition.address(0)])
        return hg.RecordReader(gate, **options)

    return read


@pytest.fixture
def reader(partition, read):
    with hg.RecordWriter(partition, SCHEMA) as writer:
        for batch in BATCHES:
            writer.emit(batch)
    return read()


def test_all_of_it_as_a_table(reader):
    assert reader.read_all() == pa.Table.from_batches(BATCHES)
    assert reader.read_all().num_rows == 0


def test_the_remaining_batches_as_a_pyarrow_reader(reader):
    first = next(reader)
    rest = reader.to_reader()
    assert rest.schema == SCHEMA
    assert first.num_rows + sum(batch.num_rows for batch in rest) == 1000


def test_polars_takes_the_reader_itself(reader):
    frame = pl.DataFrame(reader)
    assert frame["n"].to_list() == list(range(1000))


def test_duckdb_reads_while_it_asks(reader):
    stream = reader.to_reader()  # noqa: F841 - duckdb finds the variable by its name
    with duckdb.connect() as connection:
        assert connection.execute("SELECT sum(n), max(s) FROM stream").fetchone() == (
            499_500,
            "row 999",
        )


def test_a_failure_comes_through(partition, read):
    writer = hg.RecordWriter(partition, SCHEMA)
    writer.emit(BATCHES[0])
    writer.flush()
    reader = read()
    partition.fail("the disk is full")
    with pytest.raises(ProducerFailedError, match="the disk is full"):
        reader.read_all()


def test_bytes_are_no_stream(partition, read):
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"abc")
    with pytest.raises(OptionError, match="are not Arrow batches"):
        read(serializer="bytes").read_all()
