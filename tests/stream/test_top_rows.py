"""The first rows of each window against a model that sorts all of them."""

from collections import Counter, defaultdict
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.windows import (
    SCHEMA,
    WINDOWS,
    Model,
    SessionModel,
    batch_of,
    ms,
    rows,
    rows_of,
)

from headgate.errors import OptionError, StateError, UnknownColumnError, UnsupportedTypeError
from headgate.sink import FileSink
from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    SessionWindow,
    SessionWindowOperator,
    SlidingWindow,
    SnapshotFolder,
    Top,
    TumblingWindow,
    WindowOperator,
    stream,
)
from headgate.stream.windows.distinct import lists_of
from headgate.stream.windows.partials import PANE, PanePartials
from headgate.stream.windows.top import TopRows

CHECKPOINTS = count(1)
TOPS = {
    "one": Top(1, by="price", ties=True),
    "two": Top(2, by=["price", "at"], rank="rank"),
    "ties": Top(2, by="price", ties=True, rank="rank"),
    "least": Top(2, by=["price", "user"], descending=False, ties=True),
}


def first_of(rows, top):
    """Return the first rows and their ranks. Values are sorted as texts of one length; nulls are last."""

    def place(row):
        columns = dict(zip(SCHEMA.names, row, strict=True))
        keys = []
        for name in top.columns:
            value = columns[name]
            number = ord(value[0]) if isinstance(value, str) else value
            keys.append(
                (value is None, 0 if value is None else number * (-1 if top.descending else 1))
            )
        return keys

    ordered = sorted(rows, key=place)
    ranked = []
    for at, row in enumerate(ordered):
        rank = at if not top.ties else [place(r) for r in ordered].index(place(row))
        if rank < top.n:
            ranked.append((*row, rank + 1))
    return ranked


def result_rows(results, top):
    """Return rows of results with their windows, without the rank if it is not wanted."""
    assert ("rank" in results.schema.names) == (top.rank is not None)
    return Counter(rows_of(results))


def modelled(results, top):
    shown = slice(None) if top.rank else slice(-1)
    return Counter(
        (*row[:3], start, end, *row[3:][shown]) for start, end, rows in results for row in rows
    )


def model_of(name, lateness, top):
    model = (SessionModel if name == "session" else Model)(WINDOWS[name], lateness)
    model.result = lambda window: (window[1], window[2], first_of(model.windows[window], top))
    return model


def operator(name, top, lateness, backend=None, **options):
    kind = SessionWindowOperator if name == "session" else WindowOperator
    settings = {"keys": ["user"], "time": "at", "window": WINDOWS[name], "schema": SCHEMA} | options
    schema = settings.pop("schema")
    return kind(schema, top=top, allowed_lateness=ms(lateness), backend=backend, **settings)


def restored(each):
    store = (SnapshotFolder("task", fs._MockFileSystem()), next(CHECKPOINTS))
    each.backend.snapshot(store[1]).write(store[0])
    return KeyedStateBackend.restore([store])


@pytest.mark.parametrize("top", TOPS.values(), ids=TOPS)
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=12, deadline=None)
@given(st.sampled_from([0, 5]), st.lists(rows | st.integers(-6, 30), max_size=8), st.integers(0, 7))
def test_first_rows_of_each_key_and_window(name, top, lateness, steps, at):
    ours, model = operator(name, top, lateness), model_of(name, lateness, top)
    for number, step in enumerate([*steps, 100]):
        if number == at:
            ours = operator(name, top, lateness, restored(ours))
            ours.advance_watermark(model.watermark)
        if isinstance(step, int):
            results = ours.advance_watermark(step).results
            assert are_alike(result_rows(results, top), modelled(model.advance(step), top), top)
        else:
            results, late = model.process(step)
            output = ours.process(batch_of(step))
            assert are_alike(result_rows(output.results, top), modelled(results, top), top)
            assert Counter(rows_of(output.late)) == Counter(late)
    assert sum(state.table().num_rows for state in ours.backend.states.values()) == 0


def are_alike(ours, expected, top):
    """Return True if rows are equal in the columns that decide, and in all with ties."""
    if top.ties:
        return ours == expected
    at = [SCHEMA.names.index(name) for name in top.columns]

    def shown(rows):
        places = [*at, 3, 4, *([5] if top.rank else [])]
        return Counter(tuple(row[place] for place in places) for row in rows.elements())

    return shown(ours) == shown(expected)


@pytest.mark.parametrize("top", TOPS.values(), ids=TOPS)
@pytest.mark.parametrize("name", ["tumbling", "sliding unevenly"])
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), rows), max_size=8), st.integers(0, 25))
def test_first_rows_of_all_keys_in_two_phases(name, top, steps, watermark):
    options = {"window": WINDOWS[name], "time": "at", "top": top}
    tasks = [PanePartials(SCHEMA, allowed_lateness=ms(0), **options) for _ in range(2)]
    merge = operator(name, top, 0, schema=tasks[0].schema, keys=[], time=PANE, partials_of=SCHEMA)
    model = Model(WINDOWS[name], 0)
    model.result = lambda window: (
        window[1],
        window[2],
        first_of([(user, at, price) for _, at, (user, price) in model.windows[window]], top),
    )
    for number, (at, step) in enumerate([*steps, (0, watermark), (0, 100)]):
        if isinstance(step, int):
            for task in tasks:
                task.watermark = step
                merge.process(task.take())
            results = merge.advance_watermark(step).results
            assert are_alike(result_rows(results, top), modelled(model.advance(step), top), top)
        else:
            tasks[at].process(batch_of(step))
            model.process([(None, at, (user, price)) for user, at, price in step])
            if number % 2:
                merge.process(tasks[at].take())


def test_values_of_any_type_have_an_order():
    columns = {
        pa.float64(): [1.0, float("nan"), -0.0, None, float("-inf"), float("inf"), -3.5],
        pa.uint64(): [0, 2**64 - 1, 2**63, None, 1],
        pa.int64(): [0, -(2**63), 2**63 - 1, None, -1],
        pa.bool_(): [True, None, False],
        pa.string(): ["b", "", None, "a"],
        pa.decimal128(9, 2): [Decimal("3.00"), Decimal("-1.00"), None, Decimal("2.50")],
        pa.timestamp("us", "UTC"): [3, None, 1],
    }

    def order(value):
        return (str(value) == "nan", value)

    for of, values in columns.items():
        array = pa.array(values, of)
        plain = [v for v in array.to_pylist() if v is not None]
        for descending in (False, True):
            reduce = TopRows(Top(9, by="v", descending=descending))
            lists = lists_of(pa.record_batch({"v": array}).to_struct_array())
            _, (first,) = reduce.of_groups(pa.array([0] * len(array)).to_numpy(), lists)
            expected = [*sorted(plain, key=order, reverse=descending), None]
            assert str([row["v"] for row in first.as_py()]) == str(expected)


NUMBERS = 4000


def numbers(tmp_path):
    source = stream_jobs.RateSource(2500, rows=NUMBERS, start_time=stream_jobs.START, splits=3)
    fail = stream_jobs.FailOnce(tmp_path / "failed", 400)
    return (
        stream(source, watermarks=stream_jobs.watermarks(), name="numbers")
        .map(bid, name="bids")
        .map(fail, name="fail")
    )


def bid(batch):
    """Return an event time, an auction and a price, some of which are equal."""
    ids = batch["id"].to_numpy()
    at = stream_jobs.with_key(batch)["at"]
    return pa.record_batch({"at": at, "auction": ids * 7919 % 31 % 11, "price": ids * 7919 % 97})


def events():
    for number in range(NUMBERS):
        at = number // stream_jobs.KEYS + stream_jobs.START // 1000
        yield at, number * 7919 % 31 % 11, number * 7919 % 97


def run(job, tmp_path):
    """Run a job that fails once, stops, and goes on with another parallelism; return its rows."""

    def sunk():
        return job(numbers(tmp_path)).sink(
            FileSink(str(tmp_path / "out"), mode="append"), name="out"
        )

    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1, "restart_delay": 0.01}
    query = sunk().start(parallelism=2, **options)
    wait_for_a_checkpoint(query, 4)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    assert query.status.restarts == 1
    sunk().run(parallelism=3, savepoint=savepoint, checkpoint=str(tmp_path / "others"))
    table = stream_jobs.rows_of(tmp_path / "out")
    seconds = {
        name: table[name].cast(pa.timestamp("s")).cast(pa.int64())
        for name in table.schema.names
        if "window" in name
    }
    for name, column in seconds.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def test_the_auctions_with_most_bids_of_each_sliding_window(tmp_path):
    def job(bids):
        return bids.key_by("auction").window(
            SlidingWindow("60s", "20s"),
            time="at",
            aggregates=[Aggregate("count", name="bids")],
            top=Top(2, by="bids", ties=True, rank="rank"),
            name="hot",
        )

    counts = defaultdict(Counter)
    for at, auction, _ in events():
        for start in range(at // 20 * 20 - 40, at + 1, 20):
            counts[start][auction] += 1
    expected = Counter()
    for start, of_auctions in counts.items():
        for auction, bids in of_auctions.items():
            rank = 1 + sum(other > bids for other in of_auctions.values())
            expected[auction, start, start + 60, bids, rank] += rank <= 2
    assert Counter(rows_of(run(job, tmp_path))) == +expected


def test_the_highest_bids_of_each_window(tmp_path):
    def job(bids):
        return bids.window(
            TumblingWindow("20s"), time="at", top=Top(1, by="price", ties=True), name="highest"
        )

    most = defaultdict(int)
    for at, _, price in events():
        most[at // 20 * 20] = max(most[at // 20 * 20], price)
    expected = Counter(
        (at, auction, price, at // 20 * 20, at // 20 * 20 + 20)
        for at, auction, price in events()
        if price == most[at // 20 * 20]
    )
    table = run(job, tmp_path)
    at = table["at"].cast(pa.timestamp("s")).cast(pa.int64())
    assert Counter(rows_of(table.set_column(0, "at", at))) == expected


def test_arguments_are_checked():
    bids = stream_jobs.numbers(10).map(
        lambda batch: batch.append_column(
            "list", pa.array([[1]] * len(batch), pa.list_(pa.int64()))
        )
    )
    minute, top, counts = TumblingWindow("60s"), Top(1, by="id"), [Aggregate("count")]
    for wrong in (lambda: Top(0, by="id"), lambda: Top(1, by=[3]), lambda: Top(1, by="id", rank=3)):
        with pytest.raises(OptionError):
            wrong()
    with pytest.raises(StateError, match="by no column"):
        Top(1, by=[])
    with pytest.raises(UnknownColumnError):
        bids.window(minute, time="at", top=Top(1, by="price"))
    with pytest.raises(UnsupportedTypeError):
        bids.window(minute, time="at", top=Top(1, by="list"))
    with pytest.raises(StateError, match="two columns"):
        bids.window(minute, time="at", top=Top(1, by="id", rank="key"))
    with pytest.raises(StateError, match="one of"):
        bids.window(minute, time="at", top=top, function=lambda windows: windows)
    for rows_, options in (
        (bids, {"window": minute}),
        (bids.key_by("key"), {"window": SessionWindow("1s")}),
        (bids.key_by("key"), {"window": minute, "allowed_lateness": "1s"}),
    ):
        with pytest.raises(StateError, match="nothing to choose from"):
            rows_.window(time="at", aggregates=counts, top=Top(1, by="count"), **options)
