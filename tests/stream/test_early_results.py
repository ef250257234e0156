"""Results of open windows: each change fits the rows before it, and they lead to what a model of all rows has."""

from datetime import UTC

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import stream_jobs
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.panes import AGGREGATES, FIXED, aggregated
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.windows import SCHEMA, WINDOWS, Model, batch_of, ms, rows, rows_of

from headgate.errors import OptionError, StateError, StreamError
from headgate.sink import FileSink
from headgate.source import RateSource
from headgate.stream import (
    Aggregate,
    CountWindow,
    SessionWindow,
    SlidingWindow,
    Top,
    TumblingWindow,
    stream,
)
from headgate.stream.operators.windowed import LATE, WindowedOperator

CHECKPOINTS = st.tuples(st.just("checkpoint"), st.sampled_from([None, 1, 2, 3]))


class Early(OperatorTasks):
    """Tasks with early results each 10 ms of a clock, whose changes are applied to a table."""

    def __init__(self, name, lateness):
        self.time, self.table, self.late = 0, {}, []

        def make():
            return WindowedOperator(
                SCHEMA,
                None,
                early=10,
                aggregates=AGGREGATES,
                window=WINDOWS[name],
                keys=("user",),
                time="at",
                allowed_lateness=ms(lateness),
            )

        super().__init__(make, ["user"], clock=lambda: self.time)

    def _emit(self, batch, output):
        """Apply changes; each of them must fit."""
        if output == LATE:
            self.late += rows_of(batch)
            return
        gone = {}
        for *row, change in rows_of(batch):
            key, values = tuple(row[:3]), tuple(row[3:])
            if change == "insert":
                assert key not in self.table
                self.table[key] = values
            elif change == "update_before":
                assert self.table[key] == values
                gone[key] = values
            else:
                assert change == "update_after"
                assert gone.pop(key) != values, "an update that changes nothing"
                self.table[key] = values
        assert not gone

    def advance(self):
        """Let the time of the next early results come, and return True if there was one."""
        due = [task.next_processing_timer for task in self.tasks]
        self.time += 11
        for task, time in zip(self.tasks, due, strict=True):
            if time is not None:
                assert time <= self.time
                task.advance_processing_time(self.time)
        return any(time is not None for time in due)


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("name", FIXED)
@settings(max_examples=25, deadline=None)
@given(st.lists(rows | st.integers(-6, 30) | st.just("early") | CHECKPOINTS, max_size=12))
def test_changes_lead_to_the_results_of_a_model(name, lateness, steps):
    ours, model = Early(name, lateness), Model(WINDOWS[name], lateness)
    model.result = lambda window: (*window, *aggregated(model.windows[window]))
    expected = {}
    for step in [*steps, "early", 100]:
        if isinstance(step, tuple):
            ours.checkpoint(step[1])
        elif step == "early":
            ours.advance()
            expected |= {window: aggregated(of) for window, of in model.windows.items() if of}
            assert ours.table == expected
            assert not ours.advance(), "there is nothing new"
        elif isinstance(step, int):
            ours.advance_watermark(step)
            for row in model.advance(step):
                expected[row[:3]] = row[3:]
            closed = {w: values for w, values in expected.items() if w[2] - 1 <= model.watermark}
            assert {w: ours.table[w] for w in closed} == closed
        else:
            results, late = model.process(step)
            if step:
                ours.process(batch_of(step))
            expected |= {row[:3]: row[3:] for row in results}
            assert sorted(ours.late, key=repr) == sorted(late, key=repr)
            ours.late.clear()
    assert ours.table == expected
    for task in ours.tasks:
        states = task._operator.backend.states.values()
        assert sum(state.table().num_rows for state in states) == 0


@pytest.mark.parametrize("has_keys", [False, True])
def test_changes_of_a_job_that_fails_and_changes_its_parallelism(tmp_path, has_keys):
    def job(rate):
        source = RateSource(rate, rows=4000, start_time=stream_jobs.START, splits=3)
        fail = stream_jobs.FailOnce(tmp_path / "failed", 150)
        rows = stream(source, watermarks=stream_jobs.watermarks(), name="numbers")
        rows = rows.map(stream_jobs.with_key, name="keys").map(fail, name="fail")
        rows = rows.key_by("key") if has_keys else rows
        results = rows.window(
            SlidingWindow("60s", "30s"),
            time="at",
            aggregates=[Aggregate("count"), Aggregate("sum", "id")],
            early="50ms",
            name="windows",
        )
        return results.sink(FileSink(str(tmp_path / "out"), mode="append"), name="out")

    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1, "restart_delay": 0.01}
    query = job(1000).start(parallelism=2, **options)
    wait_for_a_checkpoint(query, 4)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    job(20_000).run(parallelism=3, savepoint=savepoint, checkpoint=str(tmp_path / "others"))
    table = stream_jobs.rows_of(tmp_path / "out")
    kinds = table["_change_type"].to_pylist()
    assert kinds.count("update_before") == kinds.count("update_after") > 0
    # Files have no order, but what is taken away and what comes leaves one result of each window.
    signs = [-1 if kind == "update_before" else 1 for kind in kinds]
    counts, sums, inserts = {}, {}, 0
    for row, sign in zip(table.to_pylist(), signs, strict=True):
        key = (row.get("key"), row["window_start"].replace(tzinfo=UTC).timestamp())
        counts[key] = counts.get(key, 0) + sign * row["count"]
        sums[key] = sums.get(key, 0) + sign * row["sum_id"]
        inserts += row["_change_type"] == "insert"
    assert inserts == len(counts)
    assert sum(sums.values()) == 2 * sum(range(4000))
    # Windows begin at multiples of 30 seconds, at which the first number does not come.
    begin = stream_jobs.START // 1000
    expected = {}
    for number in range(4000):
        at = begin + number // stream_jobs.KEYS
        key = number % stream_jobs.KEYS if has_keys else None
        for start in range(at // 30 * 30 - 30, at + 1, 30):
            expected[key, start] = expected.get((key, start), 0) + 1
    assert counts == expected


def test_arguments_are_checked():
    rows = stream_jobs.numbers(10)
    counts, minute = [Aggregate("count")], TumblingWindow("60s")
    for options in (
        {"window": SessionWindow("1s"), "aggregates": counts},
        {"window": CountWindow(3), "aggregates": counts, "time": None},
        {"window": minute, "top": Top(1, by="id")},
        {"window": minute, "function": lambda windows: windows},
    ):
        with pytest.raises(StateError, match="early= is for"):
            rows.window(**{"time": "at", **options}, early="1s")
    for wrong in (0, "0s", "often", True):
        with pytest.raises(OptionError):
            rows.window(minute, time="at", aggregates=counts, early=wrong)
    changing = rows.window(minute, time="at", aggregates=counts, early="1s")
    assert changing.schema.names[-1] == "_change_type"
    with pytest.raises(StreamError, match="rows change"):
        changing.window(minute, time="window_end", aggregates=counts)
    assert pa.types.is_string(changing.schema.field("_change_type").type)
