"""Kept partitions: read once their producer has ended, from a file or from the index itself."""

import dataclasses
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers

import headgate as hg
from headgate.kept import read_index, write_indexes

ROWS = 100_000


@pytest.fixture
def written(environment):
    """A function that writes tables to a finished blocking partition."""

    def write(*tables, n=3, selector=None, **options):
        partition = environment(**options).create_result_partition(
            n, kind="blocking", schema=tables[0].schema
        )
        with hg.RecordWriter(partition, selector=selector) as writer:
            for table in tables:
                writer.emit(table)
        return partition

    return write


def read(environment, kept, schema=NUMBERS, **options):
    """Return the rows of kept subpartitions, read by one gate."""
    gate = environment(**options).create_input_gate(sealed=False, schema=schema)
    for one in kept:
        gate.add_kept_channel(one)
    gate.seal()
    return Task(drain, gate, schema=schema).result()


def by_hash(column="n"):
    return hg.HashSelector([column])


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("inline_limit", [0, 1 << 30])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_rows_are_read_after_their_producer_has_ended(
    environment, written, tmp_path, inline_limit, compression
):
    partition = written(numbers(ROWS), selector=by_hash(), compression=compression)
    kept = partition.keep(tmp_path / "kept", inline_limit=inline_limit)
    partition.close()
    assert [one.subpartition for one in kept] == [0, 1, 2]
    assert {one.file for one in kept} == {None if inline_limit else str(tmp_path / "kept")}
    assert len(list(tmp_path.iterdir())) == (0 if inline_limit else 1)
    apart = [read(environment, [one]) for one in kept]
    assert_same(pa.concat_tables(apart).sort_by("n"), numbers(ROWS))
    # As often as one likes, several by one gate.
    for _ in range(2):
        assert_same(read(environment, kept).sort_by("n"), numbers(ROWS))


def test_another_process_reads_the_file_once_the_producer_is_gone(tmp_path):
    program = """
    import pickle, sys
    import headgate as hg, pyarrow as pa
    environment = hg.ShuffleEnvironment(memory="1m", segment_size="32k", temp_directories=[sys.argv[1]])
    partition = environment.create_result_partition(1, kind="blocking", schema=pa.schema([("n", pa.int64())]))
    with hg.RecordWriter(partition) as writer:
        for start in range(0, 400_000, 10_000):
            writer.emit(pa.record_batch({"n": list(range(start, start + 10_000))}))
    kept = partition.keep(sys.argv[1] + "/kept")
    sys.stdout.buffer.write(pickle.dumps(kept))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        check=True,
        capture_output=True,
    )
    import pickle

    (kept,) = pickle.loads(done.stdout)
    with hg.ShuffleEnvironment() as environment:
        gate = environment.create_input_gate(sealed=False)
        gate.add_kept_channel(kept)
        gate.seal()
        schema = pa.schema([("n", pa.int64())])
        table = pa.Table.from_batches(hg.RecordReader(gate, schema=schema), schema)
    assert table["n"].to_pylist() == list(range(400_000))


def test_batches_outlive_the_reader_the_environment_and_the_file(environment, written, tmp_path):
    path = tmp_path / "kept"
    kept = written(numbers(ROWS), n=1).keep(path)
    consumer = environment()
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_kept_channel(kept[0])
    gate.seal()
    batches = list(hg.RecordReader(gate, schema=NUMBERS))
    assert consumer.stats()["segments"]["held"] == 0, "a batch takes a segment"
    assert consumer.stats()["segments"]["pinned"] == 0
    assert set(consumer.stats()["copies"].values()) == {0}
    gate.close()
    consumer.close()
    path.unlink()
    assert_same(pa.Table.from_batches(batches), numbers(ROWS))


def test_subpartitions_without_rows_are_left_out(environment, written, tmp_path):
    kept = written(numbers(100), n=4, selector=hg.GlobalSelector()).keep(tmp_path / "kept")
    assert [one.subpartition for one in kept] == [0]
    assert_same(read(environment, kept), numbers(100))
    assert written(numbers(0), n=4).keep(tmp_path / "none") == []
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_row_that_spans_buffers_and_bytes_records(environment, tmp_path):
    wide = pa.table({"text": ["x" * 300_000, "y", "z" * 1_000_000]})
    producer = environment()
    partition = producer.create_result_partition(1, kind="blocking", schema=wide.schema)
    with hg.RecordWriter(partition) as writer:
        writer.emit(wide)
    for inline_limit in (0, 1 << 30):
        kept = partition.keep(tmp_path / f"wide-{inline_limit}", inline_limit=inline_limit)
        assert read(environment, kept, wide.schema).equals(wide)


def test_the_file_can_be_read_by_its_owner_only(written, tmp_path):
    written(numbers(100)).keep(tmp_path / "kept")
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600


def test_a_file_in_another_file_system_is_a_copy(environment, written, tmp_path):
    if Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system")
    partition = written(numbers(ROWS), temp_directories="/dev/shm")
    kept = partition.keep(tmp_path / "kept")
    assert_same(read(environment, kept).sort_by("n"), numbers(ROWS))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_an_existing_file_is_never_replaced(written, tmp_path):
    path = tmp_path / "kept"
    path.write_text("mine")
    partition = written(numbers(100))
    with pytest.raises(hg.errors.SpillError, match="File exists"):
        partition.keep(path)
    assert path.read_text() == "mine"
    with pytest.raises(hg.errors.PartitionNotFoundError):
        partition.keep(tmp_path / "missing" / "kept")
    assert partition.keep(tmp_path / "other")


def test_only_a_finished_blocking_partition_can_be_kept(environment, tmp_path):
    producer = environment()
    partition = producer.create_result_partition(1, kind="blocking", schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(10))
        with pytest.raises(hg.errors.ClosedError, match="not finished"):
            partition.keep(tmp_path / "kept")
    assert partition.keep(tmp_path / "kept")
    for kind in ("pipelined", "hybrid"):
        other = producer.create_result_partition(1, kind=kind, schema=NUMBERS)
        with pytest.raises(hg.errors.ClosedError, match="only a blocking partition"):
            other.keep(tmp_path / "other")
        other.close()


def test_a_file_that_is_gone_is_an_error_of_the_reader(environment, written, tmp_path):
    kept = written(numbers(ROWS)).keep(tmp_path / "kept")
    (tmp_path / "kept").unlink()
    with pytest.raises(hg.errors.PartitionNotFoundError, match="kept"):
        read(environment, kept)


def test_a_file_that_was_cut_is_an_error(environment, written, tmp_path):
    """Each changed byte is one, too: test_damaged_files.py."""
    path = tmp_path / "kept"
    kept = written(numbers(ROWS), n=1).keep(path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    with pytest.raises(hg.errors.SpillError, match="of a file of"):
        read(environment, kept)


def test_a_damaged_index_is_refused(environment, written, tmp_path):
    (kept,) = written(numbers(100), n=1).keep(tmp_path / "kept", inline_limit=1 << 20)
    for offset in (0, 4, 8, 20):
        index = bytearray(kept.index)
        index[offset] ^= 1
        with pytest.raises(hg.errors.IntegrityError):
            read(environment, [dataclasses.replace(kept, index=bytes(index))])
    with pytest.raises(hg.errors.IntegrityError):
        read(environment, [dataclasses.replace(kept, index=kept.index[:10])])
    with pytest.raises(hg.errors.IntegrityError, match="exceed"):
        read(environment, [dataclasses.replace(kept, index=kept.index[:-50])])


def test_another_schema_is_refused(environment, written, tmp_path):
    kept = written(numbers(100)).keep(tmp_path / "kept")
    with pytest.raises(hg.errors.SchemaMismatchError):
        read(environment, kept, pa.schema([("other", pa.string())]))


def test_a_task_event_has_nobody_to_take_it(environment, written, tmp_path):
    kept = written(numbers(100), n=1).keep(tmp_path / "kept")
    gate = environment().create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_kept_channel(kept[0])
    gate.send_task_event("stop")
    with pytest.raises(hg.errors.TaskEventError, match="has ended"):
        drain(gate, schema=NUMBERS)


def test_without_room_for_a_mapping_the_file_is_read_piece_by_piece(tmp_path):
    program = """
    import resource, sys
    import headgate as hg, pyarrow as pa
    schema = pa.schema([("n", pa.int64())])
    batch = pa.record_batch([pa.array(range(1_000_000), pa.int64())], schema=schema)
    producer = hg.ShuffleEnvironment(memory="64m", temp_directories=[sys.argv[1]])
    partition = producer.create_result_partition(1, kind="blocking", schema=schema)
    with hg.RecordWriter(partition) as writer:
        for _ in range(16):
            writer.emit(batch)
    kept = partition.keep(sys.argv[1] + "/kept")
    producer.close()
    size = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), size + (48 << 20)))
    with hg.ShuffleEnvironment(memory="1m", segment_size="32k") as consumer:
        gate = consumer.create_input_gate(sealed=False, schema=schema)
        gate.add_kept_channel(kept[0])
        gate.seal()
        print(sum(batch.num_rows for batch in hg.RecordReader(gate, schema=schema)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "kept").stat().st_size > 100 << 20
    assert done.stdout.strip() == "16000000"


@pytest.fixture
def server(environment):
    return environment(same_host_link="off")


def name(number=1):
    return bytes([number]) * 16


def open_served(environment, server, index=0, number=1, **options):
    gate = environment(same_host_link="off", **options).create_input_gate(
        sealed=False, schema=NUMBERS
    )
    gate.add_channel(hg.ChannelAddress(*server.address, name(number), index, server.process_id))
    gate.seal()
    return gate


def read_served(environment, server, index=0, number=1, **options):
    gate = open_served(environment, server, index, number, **options)
    return Task(drain, gate, schema=NUMBERS).result()


@pytest.mark.parametrize("inline_limit", [0, 1 << 30])
def test_a_served_partition_is_read_by_several_consumers_as_often_as_they_like(
    environment, written, server, tmp_path, inline_limit
):
    kept = written(numbers(ROWS), selector=by_hash()).keep(
        tmp_path / "kept", inline_limit=inline_limit
    )
    server.serve(name(), write_indexes(tmp_path / "kept", kept))
    for _ in range(2):
        apart = [read_served(environment, server, index) for index in range(3)]
        assert_same(pa.concat_tables(apart).sort_by("n"), numbers(ROWS))
    # Whatever is read is mapped, and no segment is taken.
    assert server.stats()["segments"]["held"] == 0


def test_a_consumer_waits_for_a_partition_that_is_served_later(
    environment, written, server, tmp_path
):
    kept = written(numbers(100), n=1).keep(tmp_path / "kept")
    indexes = write_indexes(tmp_path / "kept", kept)
    reading = Task(read_served, environment, server)
    time.sleep(0.2)
    server.serve(name(), indexes)
    assert_same(reading.result(), numbers(100))


def test_what_is_not_served_is_named(environment, written, server, tmp_path):
    kept = written(numbers(100), n=1).keep(tmp_path / "kept", inline_limit=0)
    indexes = write_indexes(tmp_path / "kept", kept)
    server.serve(name(), indexes)
    with pytest.raises(hg.errors.PartitionNotFoundError, match="subpartition 7 has no rows"):
        read_served(environment, server, index=7)
    with pytest.raises(hg.errors.HeadgateError, match="registered before"):
        server.serve(name(), indexes)
    assert server.withdraw(name())
    assert not server.withdraw(name())
    with pytest.raises(hg.errors.PartitionNotFoundError, match="was released"):
        read_served(environment, server)
    server.serve(name(2), indexes)
    (tmp_path / "kept").unlink()
    with pytest.raises(hg.errors.PartitionNotFoundError, match="No such file"):
        read_served(environment, server, number=2)
    Path(indexes).unlink()
    with pytest.raises(hg.errors.PartitionNotFoundError, match="No such file"):
        read_served(environment, server, number=2)


def test_a_damaged_page_is_not_served(environment, written, server, tmp_path):
    kept = written(numbers(ROWS), n=1).keep(tmp_path / "kept", inline_limit=0)
    server.serve(name(), write_indexes(tmp_path / "kept", kept))
    flip(tmp_path / "kept", 100_000)
    with pytest.raises(hg.errors.IntegrityError, match="checksum"):
        read_served(environment, server)


def test_a_reader_goes_on_when_its_partition_is_withdrawn_and_its_files_are_deleted(
    environment, written, server, tmp_path
):
    kept = written(numbers(ROWS), n=1).keep(tmp_path / "kept", inline_limit=0)
    indexes = write_indexes(tmp_path / "kept", kept)
    server.serve(name(), indexes)
    reader = hg.RecordReader(open_served(environment, server), schema=NUMBERS)
    first = Task(next, reader).result()
    server.withdraw(name())
    Path(indexes).unlink()
    (tmp_path / "kept").unlink()
    rest = Task(list, reader).result()
    assert_same(pa.Table.from_batches([first, *rest]), numbers(ROWS))


def test_a_damaged_file_of_indexes_is_refused(environment, written, server, tmp_path):
    kept = written(numbers(100), n=1).keep(tmp_path / "kept", inline_limit=0)
    indexes = Path(write_indexes(tmp_path / "kept", kept))
    flip(indexes, 30)
    server.serve(name(), indexes)
    with pytest.raises(hg.errors.IntegrityError):
        read_served(environment, server)
    with pytest.raises(hg.errors.IntegrityError):
        read(environment, [read_index(indexes, 0)])
