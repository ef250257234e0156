"""Sums, counts, minima, maxima and means of all types and kinds of window against one model in plain Python."""

import decimal
import math
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.windows import WINDOWS, model_of, ms, operator

from headgate.errors import StateError, UnsupportedTypeError
from headgate.stream import Aggregate, KeyedStateBackend, ReducingStateDescriptor, SlidingWindow
from headgate.stream.windows.panes import PaneTimes

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [math.nan, 0.0, -0.0, 1.5, -2.5, math.inf, -math.inf]
DECIMALS = {
    "decimal128(5, 2)": (pa.decimal128(5, 2), ["999.99", "-0.01", "0.00"]),
    "decimal128(38, 0)": (pa.decimal128(38, 0), ["9" * 38, "-" + "9" * 38, "1"]),
    "decimal256(70, 2)": (pa.decimal256(70, 2), ["9" * 68 + ".99", "-0.01"]),
}
#: Times, whose values are the numbers that Arrow stores.
NUMBERED = [
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.duration("ms"),
]


def limits(of):
    info = np.iinfo(of.to_pandas_dtype())
    return [0, 1, int(info.min), int(info.max), *([-1] if info.min else [])]


def values_of_types():
    for name in INTEGERS:
        yield name, (getattr(pa, name)(), limits(getattr(pa, name)()))
    for of in (pa.float16(), pa.float32(), pa.float64()):
        yield str(of), (of, FLOATS)
    for name, (of, texts) in DECIMALS.items():
        yield name, (of, list(map(decimal.Decimal, texts)))
    for of in NUMBERED:
        largest = (1 << (of.bit_width - 1)) - 1
        if pa.types.is_time(of) or pa.types.is_date64(of):
            largest = 86_399 if of.bit_width == 32 else 86_400_000
        yield str(of), (of, [0, 1, largest])
    yield "bool", (pa.bool_(), [True, False])
    for of in (pa.string(), pa.large_string()):
        yield str(of), (of, ["", "a", "b", "zoë"])
    for of in (pa.binary(), pa.large_binary(), pa.binary(2)):
        yield str(of), (of, [b"ab", b"a\xff", b"\x00\x01"])


TYPES = dict(values_of_types())


def array_of(values, of):
    if of in NUMBERED:
        stored = pa.int32() if of.bit_width == 32 else pa.int64()
        return pa.array(values, stored).view(of)
    return pa.array(np.array(values, object), of) if of == pa.float16() else pa.array(values, of)


def plain(array):
    if array.type in NUMBERED:
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.to_pylist()


class Overflow(Exception):
    pass


def kinds_of(of):
    """Return the aggregates that a type has."""
    t = pa.types
    can_sum = t.is_integer(of) or t.is_floating(of) or t.is_decimal(of)
    sums = ["sum", "mean"] if can_sum else ["sum"] if t.is_duration(of) else []
    return ["count", "min", "max", *(kind for kind in sums if kind == "sum" or can_sum)]


def largest_sum(of):
    if pa.types.is_decimal(of):
        digits = 76 if of.bit_width == 256 else 38
        return decimal.Decimal(10**digits - 1).scaleb(-of.scale)
    return (1 << (64 if of == pa.uint64() else 63)) - 1


def modelled(values, of, kinds):
    """Return the aggregates of the values that are not null, one value at a time."""
    found = {"count": len(values)}
    if not values:
        return [found.get(kind) for kind in kinds]
    order = sorted(values, key=lambda v: (v != v, 0 if v != v else v))  # noqa: PLR0124 - NaN
    found |= {"min": order[0], "max": order[-1]}
    if "sum" in kinds:
        with decimal.localcontext(prec=80):
            total = sum(values[1:], start=values[0])
            if not isinstance(total, float):
                largest = largest_sum(of)
                if not -largest - (not pa.types.is_decimal(of)) <= total <= largest:
                    raise Overflow
        found["sum"] = total
    if "mean" in kinds:
        found["mean"] = (
            math.fsum(map(float, values)) / len(values)
            if all(map(math.isfinite, values))
            else sum(map(float, values)) / len(values)
        )
    return [found[kind] for kind in kinds]


def are_same(kind, one, other, scale):
    if one is None or other is None:
        return one is other
    if isinstance(other, float) and math.isnan(other):
        return math.isnan(one)
    if kind == "mean":
        # Sums of doubles are rounded in any order.
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=scale * 1e-12)
    return one == other


def check(results, model, windows, of, kinds):
    got = {}
    columns = zip(*(plain(column) for column in results.columns), strict=True)
    for key, start, end, *values in columns:
        got[key, start, end] = values
    assert len(got) == results.num_rows
    assert got.keys() == set(windows)
    for window, values in got.items():
        members = values_in(model, window)
        expected = modelled(members, of, kinds)
        scale = sum(abs(float(v)) for v in members if math.isfinite(v)) if "mean" in kinds else 0
        for kind, one, other in zip(kinds, values, expected, strict=True):
            assert are_same(kind, one, other, scale), (window, kind, one, other)


def values_in(model, window):
    return [value for _, _, value in model.windows[window] if value is not None]


def exceeds(lists, of, kinds):
    """Return True if a sum of a list exceeds its type."""
    try:
        for values in lists:
            modelled(values, of, kinds)
    except Overflow:
        return True
    return False


rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-4, 25), st.integers(0, 9)), max_size=8
)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(WINDOWS)),
    st.sampled_from([0, 4]),
    st.lists(rows | st.integers(-6, 30), max_size=8),
)
def test_aggregates_of_all_types_are_those_of_a_model(name, kind, lateness, steps):
    of, choices = TYPES[name]
    kinds = kinds_of(of)
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("price", of)])
    ours = operator(
        WINDOWS[kind],
        schema,
        aggregates=[Aggregate(k, "price") for k in kinds],
        allowed_lateness=ms(lateness),
    )
    model = model_of(WINDOWS[kind], lateness)
    panes = defaultdict(list)
    for step in [*steps, 100]:
        if isinstance(step, int):
            before, model.watermark = model.watermark, max(model.watermark, step)
            due = [w for w in model.windows if before < w[2] - 1 <= model.watermark]
            if exceeds([values_in(model, window) for window in due], of, kinds):
                # Each pane of a sliding window is within the limits, but not all of them.
                with pytest.raises(StateError, match="exceeds its type"):
                    ours.advance_watermark(step)
                return
            check(ours.advance_watermark(step).results, model, due, of, kinds)
            for window in list(model.windows):
                if window[2] - 1 + lateness <= model.watermark:
                    del model.windows[window]
            continue
        choices_ = [*choices, None]
        chosen = [(k, at, choices_[n % len(choices_)]) for k, at, n in step]
        model.result = lambda window: window
        columns = list(zip(*chosen, strict=True)) or [[], [], []]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(columns[0], pa.string()),
                pa.array(columns[1], pa.int64()),
                array_of(list(columns[2]), of),
            ],
            schema=schema,
        )
        changed, late = model.process(chosen)
        windows = model.windows
        if isinstance(WINDOWS[kind], SlidingWindow):
            windows = [row[:3] for row in changed]
            for key, at, value in chosen:
                if value is not None and (key, at, value) not in late:
                    panes[key, PaneTimes(WINDOWS[kind]).starts(at)].append(value)
        sums = [*panes.values(), *(values_in(model, window) for window in windows)]
        if exceeds(sums, of, kinds):
            with pytest.raises(StateError, match="exceeds its type"):
                ours.process(batch)
            return
        check(ours.process(batch).results, model, changed, of, kinds)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["int64", "uint64", "decimal128(38, 0)", "duration[ms]"])
def test_a_sum_that_exceeds_its_type_is_an_error_in_each_kind_of_window(name, window):
    of, choices = TYPES[name]
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("price", of)])
    ours = operator(WINDOWS[window], schema, aggregates=[Aggregate("sum", "price")])
    values = array_of([max(choices)] * 2, of)
    batch = pa.RecordBatch.from_arrays([["a", "a"], [5, 5], values], schema=schema)
    with pytest.raises(StateError, match="exceeds its type") as failed:
        ours.process(batch)
    assert failed.value.code == "HG-4007"
    assert "cast the values to pa.decimal" in str(failed.value)


@pytest.mark.parametrize("name", [*INTEGERS, "decimal128(38, 0)", "duration[ms]"])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_sum_that_exceeds_its_type_changes_nothing(name, parts):
    of, choices = TYPES[name]
    backend = KeyedStateBackend(pa.schema([("id", pa.int64())]))
    total = backend.get_state(ReducingStateDescriptor("total", "sum", of))
    values, ids = [max(choices), 1, min(choices)], [1, 1, 2]
    if parts == 2:
        backend.set_keys([pa.array([1, 2])])
        total.add(array_of([max(choices), min(choices)], of))
        values, ids = [1], [1]
    backend.set_keys([pa.array(ids)])
    with pytest.raises(StateError, match="a sum of 'total' exceeds its type"):
        total.add(array_of(values, of))
    assert plain(total.get()) == ([None, None] if parts == 1 else [max(choices)])


def test_sums_of_large_decimals_are_exact():
    """A sum may exceed its type on the way, and not at the end of the batch."""
    backend = KeyedStateBackend(pa.schema([("id", pa.int64())]))
    total = backend.get_state(ReducingStateDescriptor("total", "sum", pa.decimal128(38, 0)))
    largest = decimal.Decimal("9" * 38)
    backend.set_keys([pa.array([1, 1, 1, 1])])
    total.add(pa.array([largest, largest, *[largest.copy_negate()] * 2], pa.decimal128(38, 0)))
    assert total.get().to_pylist() == [0]


def test_a_count_that_exceeds_its_type_is_an_error():
    backend = KeyedStateBackend(pa.schema([("id", pa.int64())]))
    count = backend.get_state(ReducingStateDescriptor("n", "count", pa.int8()))
    backend.set_keys([pa.array([1] * 127)])
    count.add(["x"] * 127)
    assert count.get().to_pylist() == [127]
    with pytest.raises(StateError, match="a count of 'n' exceeds its type int8"):
        count.add(["x"] * 127)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_sums_of_large_integers_are_exact(pairs):
    """Sums that leave the type on the way, and not at the end of the batch, are those of whole numbers."""
    backend = KeyedStateBackend(pa.schema([("id", pa.int64())]))
    total = backend.get_state(ReducingStateDescriptor("total", "sum", pa.int64()))
    sums = Counter()
    for key, value in pairs:
        sums[key] += value
    backend.set_keys([pa.array([key for key, _ in pairs])])
    values = pa.array([value for _, value in pairs], pa.int64())
    if any(not -(2**63) <= value < 2**63 for value in sums.values()):
        with pytest.raises(StateError, match="exceeds"):
            total.add(values)
    else:
        total.add(values)
        assert total.get().to_pylist() == list(sums.values())


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (pa.string(), "sum"),
        (pa.bool_(), "mean"),
        (pa.timestamp("ms"), "sum"),
        (pa.list_(pa.int64()), "max"),
        (pa.struct([("a", pa.int64())]), "min"),
        (pa.map_(pa.int64(), pa.int64()), "min"),
    ],
    ids=str,
)
@pytest.mark.parametrize("window", ["tumbling", "session"])
def test_aggregates_that_a_type_has_not_are_refused_when_the_window_is_made(window, of, kind):
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("price", of)])
    with pytest.raises(UnsupportedTypeError, match="column 'price'"):
        operator(WINDOWS[window], schema, aggregates=[Aggregate(kind, "price")])
