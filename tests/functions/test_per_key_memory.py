"""per_key holds the memory of its sort and the largest group, by the bytes that Arrow allocates."""

import gc
import subprocess
import sys

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


@pytest.mark.parametrize("rows", [1_000, 24_000])
def test_batches_of_a_group_take_the_memory_of_the_sort(pool, rows):
    def counts(group):
        return {"n": sum(batch.num_rows for batch in group)}

    reduce = hg.per_key("k", counts, memory=SORT, as_="batches")
    table = pa.Table.from_batches(reduce(made(rows, 1)))
    assert table["n"].to_pylist() == [rows]
    assert pool.max_memory() < SORT + (4 << 20)


@pytest.mark.parametrize(("width", "wide", "most"), [(100 << 10, 300, 12), (1 << 20, 80, 40)])
def test_wide_rows_beside_narrow_ones_are_held_by_their_bytes(pool, width, wide, most):
    """All rows of one group are narrow, and all rows of the other are wide, so averages say nothing."""

    def mixed():
        for number in range(wide):
            at = [number * 7919 % wide]
            yield pa.record_batch({"k": [2], "at": at, "s": ["x" * width]})
            yield pa.record_batch({"k": [1] * 1000, "at": at * 1000, "s": ["x"] * 1000})

    def counts(group):
        last, rows = -1, 0
        for batch in group:
            at = batch["at"].to_pylist()
            assert at == sorted(at)
            assert at[0] >= last
            last, rows = at[-1], rows + len(at)
        return {"n": rows}

    reduce = hg.per_key("k", counts, sort="at", memory=SORT, as_="batches")
    table = pa.Table.from_batches(reduce(mixed()))
    assert table["n"].to_pylist() == [1000 * wide, wide]
    assert reduce.largest_group.key == {"k": "2"}
    assert pool.max_memory() < SORT + (most << 20)


#: Reads a group of 300 MiB in a process of its own, and prints how much its resident memory has grown.
LARGE_GROUP = """
import pyarrow as pa
import headgate as hg

WIDTH, STEP = 1000, 500

def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10

def made(rows):
    texts = ["x" * WIDTH] * STEP
    for start in range(0, rows, STEP):
        at = [(start + n) * 7919 % rows for n in range(STEP)]
        yield pa.record_batch({"k": [1] * STEP, "at": at, "s": texts})

def counts(group):
    last, rows, size = -1, 0, 0
    for batch in group:
        at = batch["at"].to_pylist()
        assert at == sorted(at) and at[0] > last
        last, rows, size = at[-1], rows + len(at), size + batch.nbytes
    return {"n": rows, "bytes": size}

def run(rows):
    reduce = hg.per_key("k", counts, sort="at", memory="32m", as_="batches")
    (row,) = pa.Table.from_batches(reduce(made(rows))).to_pylist()
    assert row["n"] == rows
    return row["bytes"]

run(2 * STEP)
before = peak()
print(run(320_000), peak() - before)
"""


@pytest.mark.soak
def test_a_group_of_300_mib_takes_less_than_64_mib():
    done = subprocess.run(
        [sys.executable, "-c", LARGE_GROUP], capture_output=True, text=True, check=True
    )
    size, grown = map(int, done.stdout.split())
    assert size > 300 << 20
    assert grown < 64 << 20


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
