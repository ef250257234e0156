"""Small outputs: the same rows and the same indexes as by a partition, without a file."""

import columns
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plane import NUMBERS, SECRET, SMALL, assert_same, drain, numbers

import headgate as hg
from headgate.kept import keep_small, read_index, write_indexes

HUGE = 1 << 40


def small(batch, n=3, key="n", *, all_bytes=HUGE, page_bytes=HUGE, max_page_bytes=HUGE):
    return keep_small(
        batch,
        batch.schema,
        hg.HashSelector([key]),
        n,
        all_bytes=all_bytes,
        page_bytes=page_bytes,
        max_page_bytes=max_page_bytes,
    )


def read(kept, schema):
    with hg.ShuffleEnvironment(**SMALL) as environment:
        gate = environment.create_input_gate(sealed=False, schema=schema)
        gate.add_kept_channel(kept)
        gate.seal()
        return drain(gate, schema=schema)


def by_partition(batch, n, key, folder):
    """Return the rows of each subpartition as a partition keeps them."""
    with hg.ShuffleEnvironment(**SMALL) as environment:
        partition = environment.create_result_partition(n, kind="blocking", schema=batch.schema)
        with hg.RecordWriter(partition, selector=hg.HashSelector([key])) as writer:
            writer.emit(batch)
        kept = partition.keep(folder / "unused", inline_limit=HUGE)
        return {one.subpartition: read(one, batch.schema) for one in kept}


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from([t for t in columns.TYPES if not pa.types.is_null(t)]), max_size=5),
    st.integers(0, 300),
    st.integers(1, 100),
)
def test_each_subpartition_has_the_rows_that_a_partition_keeps(tmp_path_factory, types, rows, n):
    names = ["n", *(f"c{number}" for number in range(len(types)))]
    sources = [columns.array(t) for t in types]
    taken = [
        source.take(pa.array([row % len(source) for row in range(rows)], pa.int64()))
        for source in sources
    ]
    batch = pa.record_batch([pa.array(range(rows), pa.int64()), *taken], names)
    kept, counts = small(batch, n)
    found = {one.subpartition: read(one, batch.schema) for one in kept}
    expected = by_partition(batch, n, "n", tmp_path_factory.mktemp("kept"))
    assert list(found) == sorted(expected)
    for number, count in zip(found, counts, strict=True):
        assert_same(found[number], expected[number])
        assert found[number].num_rows == count
    assert sum(counts) == rows


def test_no_rows_are_no_subpartitions():
    assert small(numbers(0)) == ([], [])


def test_what_exceeds_the_limits_is_not_small():
    kept, _ = small(numbers(1000))
    sizes = [one.size for one in kept]
    assert small(numbers(1000), all_bytes=sum(sizes), page_bytes=0) is not None
    assert small(numbers(1000), all_bytes=sum(sizes) - 1, page_bytes=0) is None
    assert small(numbers(1000), all_bytes=0, page_bytes=max(sizes)) is not None
    assert small(numbers(1000), all_bytes=0, page_bytes=max(sizes) - 1) is None
    # The writer of segments tells whether it is one record that is too large, or many.
    assert small(numbers(1000), max_page_bytes=max(sizes) - 1) is None


def test_all_rows_of_one_key():
    batch = pa.record_batch({"n": [7] * 500, "s": ["x" * 100] * 500})
    (kept,), counts = small(batch, 1000)
    assert counts == [500]
    assert_same(read(kept, batch.schema), batch)


def test_a_file_of_indexes_has_the_pages_too(tmp_path):
    kept, _ = small(numbers(100))
    path = write_indexes(tmp_path / "kept", kept)
    for one in kept:
        found = read_index(path, one.subpartition)
        assert found.file is None
        assert_same(read(found, NUMBERS), read(one, NUMBERS))


def test_keys_and_schemas_that_cannot_be_are_refused():
    with pytest.raises(hg.errors.UnknownColumnError, match="missing"):
        small(numbers(10), key="missing")
    with pytest.raises(hg.errors.SchemaMismatchError):
        keep_small(
            pa.record_batch({"other": [1]}),
            NUMBERS,
            hg.HashSelector(["n"]),
            3,
            all_bytes=HUGE,
            page_bytes=HUGE,
            max_page_bytes=HUGE,
        )


def test_small_outputs_are_served_to_other_processes(tmp_path):
    batch = numbers(300)
    kept, _ = small(batch, 3, max_page_bytes=4096)
    options = {**SMALL, "segment_size": "4k", "same_host_link": "off", "secret": SECRET}
    with hg.ShuffleEnvironment(**options) as server, hg.ShuffleEnvironment(**options) as reader:
        server.serve(bytes(16), write_indexes(tmp_path / "kept", kept))
        found = []
        for one in kept:
            gate = reader.create_input_gate(sealed=False, schema=batch.schema)
            place = (*server.address, bytes(16), one.subpartition, server.process_id)
            gate.add_channel(hg.ChannelAddress(*place))
            gate.seal()
            found.append(drain(gate, schema=batch.schema))
            assert_same(found[-1], read(one, batch.schema))
    assert sum(table.num_rows for table in found) == 300
