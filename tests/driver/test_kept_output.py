"""Output of a producer of a kept exchange, without Spark: few rows in memory, more in a file."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.selectors import BuiltIn
from headgate.spark.tasks import kept_output
from headgate.spark.tasks.kept_output import KeptOutput
from headgate.spark.tasks.timing import Clock

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
OPTIONS = {"memory": 8 << 20, "segment_size": 32 << 10, "max_record_size": 1 << 30}


def output(folder, n=4, by=("k",), options=OPTIONS, *, is_inline=False):
    selector = hg.HashSelector(list(by)) if isinstance(by, tuple) else by
    selector = hg.RoundRobinSelector() if by is None else selector
    options = {**options, "temp_directories": [str(folder)]}
    return KeptOutput(SCHEMA, selector, n, options, Clock(), is_inline=is_inline)


def batch(rows, start=0, width=10):
    keys = pa.array(range(start, start + rows), pa.int64())
    return pa.RecordBatch.from_arrays([keys, pa.array(["x" * width] * rows)], schema=SCHEMA)


@pytest.fixture
def keep(tmp_path):
    """A function that keeps batches; returns what is kept, and how many files there are."""
    numbers = itertools.count()

    def keep(made, **changes):
        place = tmp_path / f"kept-{next(numbers)}"
        with output(tmp_path, **changes) as out:
            for one in made:
                out.emit(one)
            kept = out.keep(place)
        assert kept.totals.rows >= sum(kept.rows)
        return kept, place.exists()

    return keep


def rows_of(kept, schema=SCHEMA):
    """Return the keys in each subpartition, in their order."""
    found = {}
    with hg.ShuffleEnvironment(memory="8m") as environment:
        for one in kept.subpartitions:
            gate = environment.create_input_gate(sealed=False, schema=schema)
            gate.add_kept_channel(one)
            gate.seal()
            batches = list(hg.RecordReader(gate, schema=schema))
            found[one.subpartition] = [k for b in batches for k in b["k"].to_pylist()]
            gate.close()
    return found


def test_few_rows_take_neither_a_file_nor_a_pool(keep, monkeypatch):
    monkeypatch.setattr(hg, "ShuffleEnvironment", None)
    kept, has_file = keep([batch(100), batch(100, start=100)], n=50)
    assert (kept.totals.rows, kept.peak_bytes, has_file) == (200, 0, False)
    assert len(kept.subpartitions) == kept.totals.buffers
    monkeypatch.undo()
    assert sorted(k for keys in rows_of(kept).values() for k in keys) == list(range(200))


@pytest.mark.parametrize("width", [10, 2000])
def test_rows_are_placed_alike_whether_few_or_many(keep, monkeypatch, width):
    made = [batch(300, start, width) for start in range(0, 1200, 300)]
    apart = []
    for waiting in (kept_output._WAITING, 0):
        monkeypatch.setattr(kept_output, "_WAITING", waiting)
        kept, has_file = keep(made)
        assert has_file == (width == 2000)
        apart.append((rows_of(kept), sorted(kept.rows)))
    assert apart[0] == apart[1]


def test_a_function_may_change_the_memory_of_its_last_batch(keep):
    memory = np.zeros(50, np.int64)

    def reused():
        for number in range(4):
            memory[:] = number
            yield pa.RecordBatch.from_arrays(
                [pa.array(memory), pa.array(["s"] * 50)], schema=SCHEMA
            )

    kept, _ = keep(reused(), n=8)
    keys = sorted(k for keys in rows_of(kept).values() for k in keys)
    assert keys == sorted([0, 1, 2, 3] * 50)


def test_batches_keep_their_order_when_the_output_turns_out_large(keep):
    made = [batch(1, start) for start in range(kept_output._BATCHES + 10)]
    kept, _ = keep(made, n=1)
    assert rows_of(kept) == {0: list(range(len(made)))}
    kept, has_file = keep([batch(1000), batch(20_000, 1000, 300)], n=1)
    assert has_file
    assert rows_of(kept) == {0: list(range(21_000))}


def test_many_pages_are_inline_only_if_each_is_small(keep):
    # 400 KB in all: about 4 KB for each of 150 partitions, or all for one.
    assert not keep([batch(10_000, width=30)], n=150)[1]
    same_key = pa.RecordBatch.from_arrays(
        [pa.array([7] * 10_000), pa.array(["x" * 30] * 10_000)], schema=SCHEMA
    )
    kept, has_file = keep([same_key], n=150)
    assert (has_file, kept.rows) == (True, [10_000])


def test_where_no_consumer_can_open_a_file_there_is_none(keep):
    kept, has_file = keep([batch(20_000, width=300)], is_inline=True)
    assert (has_file, kept.totals.rows) == (False, 20_000)
    assert sorted(k for keys in rows_of(kept).values() for k in keys) == list(range(20_000))


@pytest.mark.parametrize(
    "by",
    [None, hg.GlobalSelector(), hg.BroadcastSelector(), hg.KeyGroupSelector("k"), len],
    ids=["none", "global", "broadcast", "key groups", "function"],
)
def test_other_placings_are_those_of_the_writer(keep, by):
    chosen = by if by is None or isinstance(by, BuiltIn) else (lambda rows: [2] * rows.num_rows)
    kept, has_file = keep([batch(100)], by=chosen)
    assert not has_file
    copies = 4 if isinstance(by, hg.BroadcastSelector) else 1
    assert sum(map(len, rows_of(kept).values())) == 100 * copies


def test_no_batches_and_batches_without_rows_are_kept_as_nothing(keep):
    for made in ([], [batch(0)], [batch(0), batch(0)]):
        kept, has_file = keep(made)
        assert (kept.subpartitions, kept.rows, kept.totals.rows, has_file) == ([], [], 0, False)


def test_a_record_above_its_limit_is_refused_however_few_there_are(keep):
    options = {**OPTIONS, "max_record_size": 1024}
    with pytest.raises(hg.errors.RecordTooLargeError):
        keep([batch(1, width=70_000)], options=options)
    # A page of many rows may be larger.
    kept, _ = keep([batch(100)], options=options, n=1)
    assert kept.rows == [100]


def test_an_output_that_is_given_up_frees_its_memory(tmp_path):
    def given_up():
        with output(tmp_path) as out:
            out.emit(batch(20_000, width=300))
            assert out._written is not None
            raise ValueError("the user's")

    with pytest.raises(ValueError, match="the user"):
        given_up()
    assert not list(tmp_path.iterdir())


def test_batches_of_other_encodings_are_taken(keep):
    def strings(kind):
        return pa.record_batch({"k": [1, 2], "s": pa.array(["a", "b"]).cast(kind)})

    kinds = [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    for first in kinds:
        for second in kinds:
            kept, _ = keep([strings(first), strings(second)], n=1)
            assert kept.rows == [4]
            assert rows_of(kept) == {0: [1, 2, 1, 2]}


def test_columns_without_nulls_may_say_so(keep):
    never = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
    kept, _ = keep([batch(3), batch(3).cast(never), batch(3)], n=1)
    assert kept.rows == [9]


def test_a_page_fits_a_segment_of_its_receiver(keep):
    options = {**OPTIONS, "segment_size": 4096}
    kept, has_file = keep([batch(2000, width=30)], n=2, options=options)
    assert not has_file
    assert kept.totals.buffers > 20
    assert sum(map(len, rows_of(kept).values())) == 2000
