"""Windows of all kinds in tasks that take checkpoints and change their number, against models of single rows."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.panes import AGGREGATES, aggregated
from tests.kit.windows import SCHEMA, WINDOWS, batch_of, model_of, ms, rows, rows_of

from headgate.stream.operators.windowed import LATE, ClockOperator, WindowedOperator

CHECKPOINTS = st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3]))


def lists(windows):
    """Return the rows of windows as texts, whatever their order."""
    texts = [str(sorted(map(text_of, of))) for of in windows["rows"].to_pylist()]
    columns = windows.select(["user", "window_start", "window_end"])
    return columns.append_column("rows", pa.array(texts, pa.string()))


def text_of(row):
    return str(tuple(row.values()) if isinstance(row, dict) else row)


class WindowTasks(OperatorTasks):
    """The tasks of windows, with what they emit as tuples."""

    def __init__(self, make, **more):
        super().__init__(make, ["user"], **more)

    def add(self, rows):
        """Send rows."""
        if rows:
            self.process(batch_of(rows))

    def results(self, output=None):
        """Return the rows that were emitted since the last call."""
        return Counter(row for batch in self.emitted.pop(output, []) for row in rows_of(batch))

    def rows_in_state(self):
        backends = [task._operator.backend for task in self.tasks]
        return sum(s.table().num_rows for backend in backends for s in backend.states.values())


@pytest.mark.parametrize("has_function", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=15, deadline=None)
@given(
    lateness=st.sampled_from([0, 5]),
    steps=st.lists(rows | st.integers(-6, 30) | CHECKPOINTS, max_size=12),
)
def test_windows_of_event_time(name, has_function, lateness, steps):
    window, model = WINDOWS[name], model_of(WINDOWS[name], lateness)
    options = {"function": lists} if has_function else {"function": None, "aggregates": AGGREGATES}
    options |= {"window": window, "keys": ("user",), "time": "at", "allowed_lateness": ms(lateness)}
    result = WindowedOperator(SCHEMA, **options).result_schema()
    tasks = WindowTasks(lambda: WindowedOperator(SCHEMA, result=result, **options))

    def result_of(window):
        members = model.windows[window]
        values = (str(sorted(map(text_of, members))),) if has_function else aggregated(members)
        return (*window, *values)

    model.result = result_of
    for step in [*steps, 100]:
        results, late = [], []
        if isinstance(step, tuple):
            tasks.checkpoint(step[1])
        elif isinstance(step, int):
            tasks.advance_watermark(step)
            results = model.advance(step)
        else:
            tasks.add(step)
            results, late = model.process(step)
        assert tasks.results() == Counter(results)
        assert tasks.results(LATE) == Counter(late)
    assert tasks.rows_in_state() == 0


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=20, deadline=None)
@given(st.lists(rows | st.integers(0, 6) | CHECKPOINTS, max_size=10))
def test_windows_of_processing_time(name, steps):
    model, now, came = model_of(WINDOWS[name], 0), [0], {}
    options = {"window": WINDOWS[name], "keys": ("user",), "time": None, "allowed_lateness": "0s"}
    tasks = WindowTasks(
        lambda: ClockOperator(SCHEMA, None, aggregates=AGGREGATES, **options), clock=lambda: now[0]
    )
    model.result = lambda window: (
        *window,
        *aggregated([came[id(row)] for row in model.windows[window]]),
    )
    for step in [*steps, "end"]:
        results = []
        if step == "end":
            tasks.advance_watermark((1 << 63) - 1)
            results = model.advance(10**6)
        elif isinstance(step, tuple):
            tasks.checkpoint(step[1])
        elif isinstance(step, int):
            now[0] += step
            fire_timers(tasks, now[0])
            results = model.advance(now[0] - 1)
        else:
            of_now = [(user, now[0], (user, at, price)) for user, at, price in step]
            came |= {id(row): row[2] for row in of_now}
            _, late = model.process(of_now)
            assert not late
            tasks.add(step)
            tasks.advance_watermark(50)  # of event time, which closes nothing
        shown = Counter()
        for (key, start, end, *values), count in tasks.results().items():
            shown[key, start.timestamp() * 1000, end.timestamp() * 1000, *values] += count
        assert shown == Counter(results)
        assert not tasks.results(LATE)
    assert tasks.rows_in_state() == 0


def fire_timers(tasks, now):
    """Let tasks do what is due, as they do before they handle rows."""
    for task in tasks.tasks:
        while (timer := task.next_processing_timer) is not None and timer <= now:
            task.advance_processing_time(now)


def test_a_clock_that_goes_back_makes_no_row_late():
    now = [100]
    options = {"window": WINDOWS["tumbling"], "keys": ("user",), "time": None}
    options |= {"allowed_lateness": "0s", "aggregates": AGGREGATES}
    tasks = WindowTasks(lambda: ClockOperator(SCHEMA, None, **options), clock=lambda: now[0])
    tasks.add([("a", 0, 1)])
    fire_timers(tasks, 120)
    assert tasks.results().total() == 1
    tasks.checkpoint(2)
    now[0] = 50
    tasks.add([("a", 0, 1)])
    fire_timers(tasks, 200)
    ((_, start, *_),) = tasks.results()
    assert start.timestamp() == 0.12
