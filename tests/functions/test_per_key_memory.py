"""per_key holds the memory of its sort and the largest group, by the bytes that Arrow allocates."""

import gc

import polars as pl
import pyarrow as pa
import pytest

import headgate as hg
from headgate.functions.sorting import sort_batches

WIDTH = 1000
SORT = 4 << 20


@pytest.fixture
def pool():
    """A pool that counts what is allocated from here on."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    gc.collect()
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def made(rows, groups, step=500):
    """Yield batches of rows of about 1 KB, whose keys take turns."""
    for start in range(0, rows, step):
        numbers = range(start, min(rows, start + step))
        yield pa.record_batch(
            {"k": [n % groups for n in numbers], "s": ["x" * WIDTH for _ in numbers]}
        )


@pytest.mark.parametrize(
    ("rows", "groups", "as_"),
    [(24_000, 1, "arrow"), (24_000, 2, "arrow"), (24_000, 1, "polars"), (24_000, 500, "arrow")],
)
def test_per_key_holds_its_sort_and_the_largest_group(pool, rows, groups, as_):
    def counts(group):
        if isinstance(group, pl.DataFrame):
            return {"k": group["k"][0], "n": group.height}
        return {"k": group["k"][0].as_py(), "n": group.num_rows}

    reduce = hg.per_key("k", counts, memory=SORT, as_=as_)
    found = pa.Table.from_batches(reduce(made(rows, groups)))
    assert found["n"].to_pylist() == [rows // groups] * groups
    largest = rows // groups * (WIDTH + 20)
    assert pool.max_memory() < SORT + max(largest, 10 << 20) * 1.05


@pytest.mark.parametrize("rows", [1_000, 3_000, 24_000])
def test_a_sort_takes_no_more_than_its_memory(pool, rows):
    total = sum(batch.num_rows for batch in sort_batches(made(rows, 7), ["k"], SORT))
    assert total == rows
    assert pool.max_memory() < SORT + (2 << 20)  # and a batch on its way in, and one out


def test_a_large_group_comes_in_chunks_and_small_ones_in_one():
    seen = []
    by_key = hg.per_key("k", lambda g: seen.append(g["s"].num_chunks) or [], memory=SORT)
    list(by_key(made(12_000, 1)))
    list(by_key(made(1_000, 10)))
    assert seen[0] > 1
    assert seen[1:] == [1] * 10
