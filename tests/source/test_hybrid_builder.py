"""The builder of a chain of sources, its errors, and the chain's serializers and pickles."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.errors import OptionError, SchemaMismatchError, StateVersionError
from headgate.source import FileSource, HybridSource, NumberSequenceSource, read
from headgate.source.hybrid.state import HybridSplit

A = NumberSequenceSource(0, 20, splits=4, batch_size=3)
B = NumberSequenceSource(100, 120, splits=5, batch_size=4)
C = NumberSequenceSource(200, 203, splits=1)
CHAIN = HybridSource.builder(A).add_source(B).build()


def test_columns_and_filters_go_to_every_source(tmp_path):
    for name in "ab":
        pq.write_table(pa.table({"id": [1, 2], "x": [name, "c"]}), tmp_path / f"{name}.parquet")
    files = [FileSource(tmp_path / f"{name}.parquet") for name in "ab"]
    chain = HybridSource.builder(files[0]).add_source(files[1]).build()
    assert chain.schema.names == ["id", "x"]
    less = chain.with_columns(["x"]).with_filter(pc.field("id") == 1)
    assert [batch.to_pylist() for batch in read(less)] == [[{"x": "a"}], [{"x": "b"}]]
    mixed = HybridSource.builder(A).add_source(B).build()
    assert mixed.with_filter(pc.field("id") == 1) is None


def test_schemas_that_differ():
    chain = HybridSource.builder(A).add_source(NumberSequenceSource(0, 1, column="n")).build()
    with pytest.raises(SchemaMismatchError, match="another schema"):
        _ = chain.schema


def test_what_a_builder_refuses():
    endless = NumberSequenceSource(0)
    with pytest.raises(OptionError, match=r"source 0 of the chain, .* has no end"):
        HybridSource.builder(endless).add_source(A).build()
    with pytest.raises(OptionError, match="needs readers"):
        HybridSource.builder(A).add_source(lambda _: B)
    with pytest.raises(OptionError, match="not allowed beside a source"):
        HybridSource.builder(A).add_source(B, readers=B)


def test_state_of_another_version_or_chain():
    for serializer in (CHAIN.split_serializer, CHAIN.enumerator_checkpoint_serializer):
        for version, data in ((2, b""), (1, b"x")):
            with pytest.raises(StateVersionError):
                serializer.deserialize(version, data)
    longer = HybridSource.builder(A).add_source(B).add_source(C).build()
    split = HybridSplit(2, C.split_serializer.deserialize(1, b'{"start":0,"end":4}'))
    data = longer.split_serializer.serialize(split)
    assert longer.split_serializer.deserialize(1, data) == split
    with pytest.raises(StateVersionError, match="HybridSource"):
        CHAIN.split_serializer.deserialize(1, data)


def test_it_travels():
    chain = pickle.loads(pickle.dumps(CHAIN))
    assert (
        chain.name == "HybridSource(NumberSequenceSource(0, 20) -> NumberSequenceSource(100, 120))"
    )
    assert sum(batch.num_rows for batch in read(chain)) == 40
