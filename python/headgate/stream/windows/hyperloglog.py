"""Approximate counts of distinct values: sketches of a few kilobytes that can be merged.

The sketch is that of Flajolet, Fusy, Gandouet and Meunier, "HyperLogLog: the analysis of a near-optimal cardinality
estimation algorithm" (2007), over hashes of 64 bits. The estimate is the improved raw one of Ertl, "New cardinality
estimation algorithms for HyperLogLog sketches" (2017), which needs no tables for small counts. The hash ends with the
mixer of Steele, Lea and Flood's SplitMix (2014).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import UnsupportedTypeError
from headgate.stream.state.table import Slots, distinct, ranges
from headgate.stream.state.values import storage_type, to_numpy
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    Words = npt.NDArray[np.uint64]

#: Bits of a hash that choose the register: 4096 registers, and a standard error of 1.04 / sqrt(4096) = 1.6 %.
_BITS: Final = 12
_REGISTERS: Final = 1 << _BITS
#: The greatest value of a register: one more than the other bits of a hash.
_MOST: Final = 64 - _BITS + 1
#: Bits of a value in a code, which is the number of a register and its value.
_VALUE_BITS: Final = 6
_GOLDEN: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
#: The codes of the registers that are not zero, in order of their numbers.
SKETCH: Final = pa.list_(pa.int32())


def check_hashable(of: pa.DataType, what: str) -> None:
    """Refuse a type whose values have no hash here.

    Raises:
        UnsupportedTypeError: neither of a fixed width nor texts.
    """
    if storage_type(of) is None and not _is_text(of):
        raise UnsupportedTypeError(
            f"an approximate count of {what}, which is of type {of}",
            remedy='cast it to string or a number · Aggregate("count_distinct", ...)',
        )


def sketches_of(values: pa.Array) -> pa.ListArray:
    """Return a sketch of each value; an empty one for null."""
    hashes = _hashes(values)
    # A bit below the others ends the run of zeros.
    rest = ((hashes << np.uint64(_BITS)) | np.uint64(1 << (_BITS - 1))) >> np.uint64(_BITS - 1)
    # Of at most 53 bits, so a double is exact, and its exponent is the number of bits.
    value = _MOST + 1 - np.frexp(rest.astype(np.float64))[1]
    register = (hashes >> np.uint64(64 - _BITS)).astype(np.int32)
    codes = (register << _VALUE_BITS) | value.astype(np.int32)
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    offsets = pa.array(np.r_[0, np.cumsum(valid)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(codes[valid], pa.int32()))


def estimates(sketches: pa.ListArray) -> pa.Int64Array:
    """Return the estimated number of distinct values of each sketch; 0 for null."""
    owners, codes = _codes(sketches)
    count = len(sketches)
    value = codes & ((1 << _VALUE_BITS) - 1)
    # Registers of each sketch by their value.
    histogram = np.bincount(owners * (_MOST + 1) + value, minlength=count * (_MOST + 1))
    histogram = histogram.reshape(count, _MOST + 1).astype(np.float64)
    histogram[:, 0] = _REGISTERS - histogram[:, 1:].sum(axis=1)
    total = _REGISTERS * _tau(1 - histogram[:, _MOST] / _REGISTERS)
    for at in range(_MOST - 1, 0, -1):
        total = (total + histogram[:, at]) / 2
    with np.errstate(divide="ignore"):
        total += _REGISTERS * _sigma(histogram[:, 0] / _REGISTERS)
        numbers = _REGISTERS**2 / (2 * np.log(2)) / total
    return pa.array(np.rint(numbers).astype(np.int64))


class MergedSketches:
    """The reduction of sketches: each register has its greatest value."""

    def __call__(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Return the sketch of both values at each position."""
        numbers = np.arange(len(left))
        return self.of_groups(np.r_[numbers, numbers], pa.concat_arrays([left, right]))[1]

    def of_groups(self, groups: Slots, sketches: pa.Array) -> tuple[Slots, pa.Array]:
        """Return each group, in order, and its sketch."""
        present = distinct(groups)
        owners, codes = _codes(sketches)
        ordered = np.sort((groups[owners] << (_BITS + _VALUE_BITS)) | codes)
        register = ordered >> _VALUE_BITS
        is_last = np.ones(len(ordered), np.bool_)
        is_last[:-1] = register[1:] != register[:-1]
        ordered = ordered[is_last]
        ends = np.searchsorted(ordered >> (_BITS + _VALUE_BITS), present, side="right")
        codes = ordered & ((1 << (_BITS + _VALUE_BITS)) - 1)
        offsets = pa.array(np.r_[0, ends], pa.int32())
        return present, pa.ListArray.from_arrays(offsets, pa.array(codes, pa.int32()))


def _codes(sketches: pa.ListArray) -> tuple[Slots, Slots]:
    """Return the sketch of each code, and the codes."""
    lengths = np.asarray(sketches.value_lengths().fill_null(0).to_numpy())
    codes = np.asarray(sketches.flatten().to_numpy()).astype(np.int64)
    return np.repeat(np.arange(len(sketches)), lengths), codes


def _is_text(of: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(of) or t.is_binary(of) or t.is_large_string(of) or t.is_large_binary(of)
    )


def _hashes(values: pa.Array) -> Words:
    """Return a hash of each value; any of null."""
    stored = storage_type(values.type)
    if stored is None:
        return _of_texts(values)
    if pa.types.is_floating(stored):
        values = normalized(pa.record_batch([values], names=[""])).column(0)
    numbers = to_numpy(values, stored)
    if numbers.dtype == np.bool_:
        numbers = numbers.astype(np.uint8)
    unsigned = np.dtype(f"u{numbers.dtype.itemsize}")
    return _mixed(np.ascontiguousarray(numbers).view(unsigned).astype(np.uint64))


def _of_texts(values: pa.Array) -> Words:
    """Return a hash of each text: of the sum of its blocks, each mixed with its place."""
    large = values.cast(pa.large_binary())
    lengths = np.asarray(pa.compute.binary_length(large).fill_null(0).to_numpy()).astype(np.int64)
    _, offsets, data = large.buffers()
    starts = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large)]
    blocks = -(-lengths // 8)
    first = np.cumsum(blocks) - blocks
    padded = np.zeros(int(blocks.sum()) * 8, np.uint8)
    content = np.frombuffer(data, np.uint8) if data is not None else padded
    padded[ranges(first * 8, lengths)] = content[ranges(starts, lengths)]
    places = ranges(np.ones(len(blocks), np.int64), blocks).astype(np.uint64)
    mixed = _mixed(padded.view(np.uint64) ^ (places * _GOLDEN))
    before = np.r_[np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)]
    return _mixed(before[first + blocks] - before[first] + lengths.astype(np.uint64))


def _mixed(blocks: Words) -> Words:
    blocks = blocks + _GOLDEN
    blocks = (blocks ^ (blocks >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    blocks = (blocks ^ (blocks >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return np.asarray(blocks ^ (blocks >> np.uint64(31)))


def _sigma(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Ertl's sigma: of a share of registers that are zero."""
    power, total = x.copy(), x.copy()
    factor = 1.0
    while True:
        power = power * power
        before, total = total, total + power * factor
        factor *= 2
        if np.array_equal(before[x < 1], total[x < 1]):
            return np.where(x < 1, total, np.inf)


def _tau(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Ertl's tau: of a share of registers that are not full."""
    root, total = x.copy(), 1 - x
    factor = 1.0
    while True:
        root = np.sqrt(root)
        factor /= 2
        before, total = total, total - (1 - root) ** 2 * factor
        if np.array_equal(before, total):
            return np.where((x > 0) & (x < 1), total / 3, 0.0)
