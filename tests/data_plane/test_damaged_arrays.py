"""Arrays whose offsets, views, keys or lengths lead outside of them: an exception, and never the end of the process.

Each case runs in a process of its own kind of cases, which must live: Arrow trusts the arrays that come through its C interface.
"""

import ctypes
import random
import subprocess
import sys

import pyarrow as pa
import pytest

import headgate as hg
from headgate import _native

#: Cases of one process.
CASES = 120

ROWS = 50
#: Words of pyarrow about texts, copies of their first bytes, and counts, which lead nowhere.
HARMLESS = ("UTF8", "padding bytes", "inlined prefix", "null_count")


def strings(choose):
    return [None if choose.random() < 0.2 else "x" * choose.randint(0, 30) for _ in range(ROWS)]


def lists(choose, inside):
    return [None if choose.random() < 0.1 else inside[: choose.randint(0, 5)] for _ in range(ROWS)]


def whole(choose):
    """Return a valid array of a random type."""
    texts = strings(choose)
    pairs = [[(str(n), text) for n in range(2)] for text in texts]
    flat = (pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view())
    kinds = [
        *(lambda kind=kind: pa.array(texts).cast(kind) for kind in flat),
        lambda: pa.array(texts),
        lambda: pa.array(texts).dictionary_encode(),
        lambda: pa.array(lists(choose, texts), pa.list_(pa.string())),
        lambda: pa.array(lists(choose, [1, 2, 3, 4, 5]), pa.large_list(pa.int32())),
        lambda: pa.array([{"s": text, "n": 1} for text in texts]),
        lambda: pa.array(pairs, pa.map_(pa.string(), pa.string())),
        lambda: pa.RunEndEncodedArray.from_arrays(list(range(1, ROWS + 1)), pa.array(texts)),
    ]
    return choose.choice(kinds)()


def damage(choose, array, most=None):
    """Change a number in one of the buffers of an array: an offset, a view, a key, a run's end, or a value.

    Without ``most`` it is anywhere, else within so many bytes of the first of these buffers.
    """
    buffers = [buffer for buffer in array.buffers()[1:] if buffer is not None and buffer.size >= 8]
    victim = buffers[0] if most or choose.random() < 0.7 else choose.choice(buffers)
    width = choose.choice((4, 8))
    at = choose.randrange((most or victim.size) // width) * width
    value = choose.choice(
        (-1, 2**31 - 1, choose.randint(-(2**31), 2**31 - 1), choose.randint(0, 500))
    )
    ctypes.memmove(victim.address + at, value.to_bytes(width, sys.byteorder, signed=True), width)


class Foreign:
    """A batch of a library that is not pyarrow. The C interface does not tell how long its buffers are."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def use(choose, column, environment, *, is_foreign=False):
    """Give a column to one of the functions that take some."""
    batch = pa.record_batch({"k": pa.array(range(ROWS)), "v": column})
    does = choose.randrange(6)
    if is_foreign:
        _native.hash_partition_ids(Foreign(batch), ["v"], 7)
    elif does == 0:
        _native.hash_partition_ids(batch, ["v"], 7)
    elif does == 1:
        _native.key_groups(column, 128)
    elif does == 2:
        index = _native.KeyIndex(pa.schema([("v", column.type)]))
        index.resolve([column])
        index.find([column])
    elif does == 3:
        _native.keep_small(
            batch.schema,
            [["k"]],
            batch,
            3,
            all_bytes=1 << 20,
            page_bytes=1 << 16,
            max_page_bytes=1 << 16,
        )
    else:
        keys = choose.choice(
            (
                hg.HashSelector("v"),
                hg.HashSelector("k"),
                hg.RoundRobinSelector(by_rows=True),
                hg.BroadcastSelector(),
            )
        )
        partition = environment.create_result_partition(3, kind="blocking", schema=batch.schema)
        try:
            with hg.RecordWriter(partition, selector=keys) as writer:
                (writer.emit if does == 4 else writer.broadcast_emit)(batch)
                writer.finish()
        finally:
            partition.close()


def play(seed):
    """Use damaged arrays; print how many pyarrow finds damaged, and how many of them were refused."""
    bad = refused = 0
    with hg.ShuffleEnvironment(memory="8m", segment_size="64k") as environment:
        for number in range(CASES):
            choose = random.Random(f"{seed}-{number}")
            is_foreign = number % 4 == 0
            column = pa.array(strings(choose)) if is_foreign else whole(choose)
            # The C interface tells how many values there are by the last offset alone.
            damage(choose, column, most=4 * ROWS if is_foreign else None)
            print(number, column.type, flush=True)
            is_bad = not_valid(column)
            try:
                use(choose, column, environment, is_foreign=is_foreign)
            except Exception as error:  # noqa: BLE001 - which one is the question
                print(type(error), error)
                refused += is_bad
            bad += is_bad
    print(f"{bad} {refused}")


def not_valid(column):
    """Return True if pyarrow finds something wrong with an array that leads outside of it."""
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        return not any(words in str(error) for words in HARMLESS)
    return False


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_array_is_an_exception_and_never_the_end_of_the_process(seed):
    program = f"from tests.data_plane.test_damaged_arrays import play; play({seed})"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    bad, refused = map(int, done.stdout.split()[-2:])
    assert bad > CASES // 4
    assert refused == bad


def test_a_panic_is_an_exception_with_a_code():
    with pytest.raises(Exception, match="there is no group of none") as caught:
        _native.key_groups(pa.array(["a"]), 0)
    assert type(caught.value).__name__ == "PanicException"
    assert isinstance(caught.value, Exception)
    assert caught.value.code == "HG-9001"
