"""The sentence about a stage of calls: made-up reports of its tasks, and the rules that name what limits it."""

import random

import numpy as np
import pytest

from headgate.observe.calls import ADVICE, CallReport, call_stages, quantile, verdict_of_calls
from headgate.observe.record import Run, Task, Verdict

MOST = 64
#: Seconds of a report, and ms of its task.
SECONDS = 2.0
#: Mean numbers, by what decides; the others are 0.
CASES = {
    "service": {"service": 63, "full": 1},
    "bytes": {"service": 10, "full": 1, "bytes": 0.9},
    "rate": {"service": 20, "rate": 44, "full": 1},
    "breaker": {"breaker": 64, "full": 1},
    "retries": {"service": 20, "retries": 44, "full": 1},
    "order": {"service": 1, "order": 0.8, "full": 0.9},
    "us": {"service": 5, "loop": 0.9, "full": 0.8},
    "rows": {"service": 30, "full": 0.2},
}


def report(means, index=0, *, busy=0.1, blocked=0.0, past=None, **gauges):
    """Return a report of a task whose calls have waited so, behind an earlier time in which they waited otherwise."""
    past = dict.fromkeys(means, 1000) if past is None else past

    def metrics(factor):
        ms = {
            name: [int(past.get(name, 0) + factor * 1000 * SECONDS * mean), 0.0]
            for name, mean in means.items()
        }
        values = {"calls_most": MOST, "call_rate": 50.0, **gauges}
        return {
            "embed": {
                "call_ms": {"kind": "tally", "values": ms, "last": "service"},
                "calls": {"kind": "counter", "value": 100 + factor * 600},
                **{name: {"kind": "gauge", "value": value} for name, value in values.items()},
                "call_seconds": {
                    "kind": "histogram",
                    "bounds": [0.1, 0.2, 0.4],
                    "counts": [50, 0, 0, 0] if not factor else [50, 300, 300, 0],
                    "sum": 1.0,
                },
            }
        }

    wall = 1000 * SECONDS
    times = {"function_ms": busy * wall, "blocked_ms": blocked * wall}
    idle = wall - sum(times.values())
    return CallReport(
        Task("source -> embed", index, input_ms=idle, **times), metrics(0), metrics(1), SECONDS
    )


#: Metrics of all tasks since the start.
SUMS = {
    "embed": {
        "call_error_kinds": {
            "kind": "tally",
            "values": {"TimeoutError": [40, 0.0], "others": [2, 0.0]},
            "last": "TimeoutError",
        },
        "call_seconds": {"bounds": [0.1, 0.2, 0.4], "counts": [50, 300, 300, 0]},
    }
}


def only(reports, rate=None):
    (stage,) = call_stages(reports, SUMS, {} if rate is None else {"embed": rate})
    return stage


@pytest.mark.parametrize("kind", CASES)
def test_each_wait_has_its_sentence(kind):
    stage = only([report(CASES[kind])], 50.0)
    assert stage.waits_for == ("service" if kind == "bytes" else kind)
    words = {
        "service": "63 of 64 calls are under way, so in_flight= is full, for 200 ms in the median and 396 ms at p99",
        "bytes": "in_flight_bytes= is full",
        "rate": "44 calls wait for a token, at 50/s",
        "breaker": "paused by its breaker: the last error was TimeoutError",
        "retries": "44 of 64 calls have failed; errors so far: TimeoutError 40, others 2",
        "order": "results behind a slow call fill in_flight_bytes=, and 1.0 of 64 calls",
        "us": "works 90 % of the time",
        "rows": "waits for rows: 30 of 64 calls",
    }
    assert words[kind] in stage.text
    assert stage.advice == ADVICE[kind]
    assert stage.per_second == 300
    assert (stage.p50_ms, stage.p99_ms) == (200.0, 396.0)
    assert stage.errors == {"TimeoutError": 40, "others": 2}
    verdict = verdict_of_calls([stage], None)
    assert (verdict and verdict.kind) == (None if kind == "rows" else f"calls-{stage.waits_for}")
    assert verdict is None or verdict.text == stage.text


def test_who_waits_for_the_next_stage_limits_nothing():
    other = Verdict("operator-busy", "sink", 0, 0.9, "text", "advice")
    stage = only([report(CASES["service"], blocked=0.8)])
    assert stage.waits_for == "next"
    assert verdict_of_calls([stage], other) is other
    assert verdict_of_calls([only([report(CASES["rate"])], 50.0)], other).kind == "calls-rate"


def test_a_task_that_works_is_us():
    assert only([report({"service": 3, "full": 0}, busy=0.9)]).waits_for == "us"
    assert only([report({"service": 3, "full": 1})]).waits_for == "us", "nothing else is the reason"
    assert only([report({"service": 40, "full": 1})]).waits_for == "service"


def test_a_lowered_rate_is_said():
    stage = only([report(CASES["rate"], call_rate=20.0)], 50.0)
    assert "at 20/s of 50/s, lowered by answers of 429" in stage.text
    assert stage.advice == ADVICE["slowed"]
    assert (stage.rate, stage.rate_asked) == (20.0, 50.0)


def test_most_of_the_tasks_decide():
    reports = [report(CASES["rate"], 0), report(CASES["rate"], 1), report(CASES["rows"], 2)]
    stage = only(reports, 50.0)
    assert (stage.waits_for, stage.tasks, stage.most) == ("rate", 3, 3 * MOST)
    assert stage.text.endswith(", in 2 of 3 tasks")
    assert (stage.under_way, stage.for_rate) == (70.0, 88.0)


def test_any_reports_have_a_sentence():
    chance = random.Random(3)
    for _ in range(300):
        names = ["service", "rate", "breaker", "retries", "order", "bytes", "full", "loop"]
        reports = [
            report(
                {name: chance.choice([0, 0.4, 0.6, 1, 30, 64]) for name in names},
                at,
                busy=chance.choice([0, 0.5, 0.9]),
            )
            for at in range(chance.randint(1, 3))
        ]
        stage = only(reports, chance.choice([None, 50.0, 100.0]))
        assert stage.text.startswith("embed ")
        run = Run("stream", "job", 1, "running", calls=(stage,))
        assert stage.text in str(run)
        assert run.plain()["calls"][0]["text"] == stage.text
    assert call_stages([], {}, {}) == ()


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.99])
def test_a_quantile_is_within_its_bucket(part):
    chance = random.Random(1)
    bounds = [round(1.6**at / 100, 4) for at in range(20)]
    for _ in range(50):
        values = np.array([chance.lognormvariate(-1, 1) for _ in range(chance.randint(1, 300))])
        counts = np.bincount(np.searchsorted(bounds, values), minlength=len(bounds) + 1)
        exact = np.quantile(values, part, method="inverted_cdf")
        got = quantile(bounds, counts.tolist(), part) / 1000
        at = int(np.searchsorted(bounds, exact))
        low, high = [0.0, *bounds][at], [*bounds, bounds[-1]][at]
        assert low - 1e-3 <= got <= high + 1e-3
    assert quantile([1.0], [0, 0], part) is None
    assert quantile([], [5], part) is None
