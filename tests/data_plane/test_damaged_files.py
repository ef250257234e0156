"""A bit that changes in a kept or spilled file is an error, never another row."""

import pytest
from plane import NUMBERS, assert_same, drain, numbers, open_files

import headgate as hg
from headgate.errors import IntegrityError

ROWS = 90


def flipped(data):
    """Return the data with a bit flipped in each byte."""
    for at in range(len(data)):
        yield at, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def filled(environment, n=1, **options):
    """Return a finished blocking partition with a few rows."""
    partition = environment.create_result_partition(n, kind="blocking", schema=NUMBERS, **options)
    with hg.RecordWriter(partition, selector=hg.HashSelector(["n"])) as writer:
        writer.emit(numbers(ROWS))
    return partition


def read_kept(environment, *kept):
    gate = environment.create_input_gate(sealed=False, schema=NUMBERS)
    try:
        for one in kept:
            gate.add_kept_channel(one)
        gate.seal()
        return drain(gate, schema=NUMBERS)
    finally:
        gate.close()


def read_spilled(environment, partition):
    gate = environment.create_input_gate([partition.address(0)], schema=NUMBERS)
    try:
        return drain(gate, schema=NUMBERS)
    finally:
        gate.close()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_bit_in_each_byte_of_a_kept_file(environment, tmp_path, compression):
    one, path = environment(compression=compression), tmp_path / "kept"
    kept = filled(one, n=2).keep(path, inline_limit=0)
    data = path.read_bytes()
    rows = [read_kept(one, each) for each in kept]
    seen = 0
    for _, wrong in flipped(data):
        path.write_bytes(wrong)
        for each, good in zip(kept, rows, strict=True):
            try:
                found = read_kept(one, each)
            except IntegrityError:
                seen += 1
            else:
                # The byte is another subpartition's, or lies between two blocks.
                assert_same(found, good)
    assert len(data) * 3 // 4 <= seen <= len(data)
    path.write_bytes(data)
    assert_same(read_kept(one, *kept).sort_by("n"), numbers(ROWS))


@pytest.mark.parametrize("remote", [False, True])
def test_a_bit_in_each_byte_of_a_spilled_partition(environment, tmp_path, remote):
    producer = environment(temp_directories=tmp_path, same_host_link="off")
    consumer = environment(same_host_link="off") if remote else producer
    partition = filled(producer)
    (file,) = open_files(tmp_path)
    data = file.read_bytes()
    assert len(data) > 8 * ROWS
    for at, wrong in flipped(data):
        if at % 7 == 0 or not remote:
            put(file, wrong)
            with pytest.raises(IntegrityError, match="checksum"):
                read_spilled(consumer, partition)
    put(file, data)
    assert_same(read_spilled(consumer, partition), numbers(ROWS))
    partition.close()


def put(file, data):
    """Overwrite an open file in place."""
    with file.open("r+b") as stream:
        stream.write(data)
