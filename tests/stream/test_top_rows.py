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
from tests.kit.operator_tasks import OperatorTasks
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
    SlidingWindow,
    SnapshotFolder,
    Top,
    TumblingWindow,
    WindowOperator,
    stream,
)
from headgate.stream.operators.windowed import LATE, WindowedOperator
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


def restored(each):
    store = (SnapshotFolder("task", fs._MockFileSystem()), next(CHECKPOINTS))
    each.backend.snapshot(store[1]).write(store[0])
    return KeyedStateBackend.restore([store])


@pytest.mark.parametrize("top", TOPS.values(), ids=TOPS)
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([0, 5]),
    st.lists(
        rows
        | st.integers(-6, 30)
        | st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3])),
        max_size=9,
    ),
)
def test_first_rows_of_each_key_and_window(name, top, lateness, steps):
    options = {"window": WINDOWS[name], "keys": ("user",), "time": "at", "top": top}
    options["allowed_lateness"] = ms(lateness)
    ours = OperatorTasks(lambda: WindowedOperator(SCHEMA, None, **options), ["user"])
    model = model_of(name, lateness, top)
    for step in [*steps, 100]:
        results, late = [], []
        if isinstance(step, tuple):
            ours.checkpoint(step[1])
        elif isinstance(step, int):
            ours.advance_watermark(step)
            results = model.advance(step)
        else:
            if step:
                ours.process(batch_of(step))
            results, late = model.process(step)
        emitted = ours.emitted.pop(None, [])
        emitted_rows = sum((result_rows(batch, top) for batch in emitted), Counter())
        assert are_alike(emitted_rows, modelled(results, top), top)
        assert Counter(r for batch in ours.emitted.pop(LATE, []) for r in rows_of(batch)) == (
            Counter(late)
        )
    backends = [task._operator.backend for task in ours.tasks]
    assert not any(s.table().num_rows for backend in backends for s in backend.states.values())


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
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            rows | st.integers(-6, 25) | st.tuples(st.just("fail"), st.integers(1, 3)),
        ),
        max_size=10,
    )
)
def test_first_rows_of_all_keys_in_two_phases(name, top, steps):
    options = {"window": WINDOWS[name], "time": "at", "top": top}

    def first_phases(parallelism, watermark):
        phases = [
            PanePartials(SCHEMA, allowed_lateness=ms(0), **options) for _ in range(parallelism)
        ]
        for phase in phases:
            phase.watermark = watermark
        return phases

    def second_phase(backend=None):
        more = options | {"keys": [], "time": PANE, "partials_of": SCHEMA}
        return WindowOperator(tasks[0].schema, backend=backend, **more)

    model = Model(WINDOWS[name], 0)
    model.result = lambda window: (
        window[1],
        window[2],
        first_of([(user, at, price) for _, at, (user, price) in model.windows[window]], top),
    )
    tasks = first_phases(2, model.watermark)
    merge = second_phase()
    for number, (at, step) in enumerate([*steps, (0, 100)]):
        if isinstance(step, int):
            for task in tasks:
                task.watermark = max(task.watermark, step)
                merge.process(task.take())
            results = merge.advance_watermark(step).results
            assert are_alike(result_rows(results, top), modelled(model.advance(step), top), top)
        elif isinstance(step, tuple):
            # Before a checkpoint all panes are sent on.
            for task in tasks:
                merge.process(task.take())
            merge, tasks = second_phase(restored(merge)), first_phases(step[1], model.watermark)
            assert not merge.advance_watermark(model.watermark).results.num_rows
        else:
            task = tasks[at % len(tasks)]
            late = task.process(batch_of(step))
            _, expected = model.process([(None, at, (user, price)) for user, at, price in step])
            assert Counter(rows_of(late)) == Counter((u, t, p) for _, t, (u, p) in expected)
            if number % 2:
                merge.process(task.take())


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


def numbers(tmp_path, rate):
    source = stream_jobs.RateSource(rate, rows=NUMBERS, start_time=stream_jobs.START, splits=3)
    fail = stream_jobs.FailOnce(tmp_path / "failed", 150)
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

    def sunk(rate):
        return job(numbers(tmp_path, rate)).sink(
            FileSink(str(tmp_path / "out"), mode="append"), name="out"
        )

    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1, "restart_delay": 0.01}
    query = sunk(1000).start(parallelism=2, **options)
    wait_for_a_checkpoint(query, 4)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    assert query.status.restarts == 1
    sunk(20_000).run(parallelism=3, savepoint=savepoint, checkpoint=str(tmp_path / "others"))
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
