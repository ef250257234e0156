"""The stages of a streaming job whose calls wait: figures of their last second, and a sentence that says what limits each.

The rules use shares of time and mean numbers of calls, so neither the length of the second nor the number of tasks matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.observe.numbers import count
from headgate.observe.numbers import share as percent
from headgate.observe.record import CallStage, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.observe.record import Task

#: Operator -> metric -> its figures, as a task reports them.
_Metrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
#: Share of in_flight= from which the calls of a task count as all under way; share of time that is most of it.
_ALL: Final = 0.9
_MOST: Final = 0.5
#: Share of its time from which a loop or a task counts as busy.
_BUSY: Final = 0.75
#: A rate below this part of what was asked was lowered.
_LOWERED: Final = 0.99
#: Kind -> a change that may help.
ADVICE: Final = {
    "service": "raise in_flight=, unless its calls only take longer then: the service is the limit",
    "bytes": "raise in_flight_bytes=",
    "rate": "raise rate=, if the service allows more",
    "slowed": "ask the service for a larger quota: it answers 429, and the rate grows again by itself when it stops",
    "breaker": "look at the service: calls go on by themselves once it answers",
    "retries": "look at the errors; retry_on= for those that pass, and a shorter backoff=",
    "order": 'ordered=False or "by_key", a larger in_flight_bytes=, or a shorter timeout= for slow calls',
    "us": "batch_rows=, so that a call has several rows; workers= and a higher parallelism; less work in the function",
    "rows": "",
    "next": "",
}


@dataclass(frozen=True, slots=True)
class CallReport:
    """A report of a task with calls.

    Attributes:
        task: its times between two reports.
        before: metrics of the first; empty for the start.
        now: metrics of the second.
        seconds: between them.
    """

    task: Task
    before: _Metrics
    now: _Metrics
    seconds: float

    @property
    def operators(self) -> list[str]:
        """The operators that make calls."""
        return [uid for uid, metrics in self.now.items() if "call_ms" in metrics]

    def mean(self, uid: str, wait: str) -> float:
        """Return how many calls have waited for something in the mean."""
        now, before = (
            _tally(of, uid, "call_ms").get(wait, (0, 0.0))[0] for of in (self.now, self.before)
        )
        return max(0.0, now - before) / (1000 * self.seconds) if self.seconds > 0 else 0.0

    def added(self, uid: str, name: str) -> float:
        """Return what a counter has counted."""
        now, before = (_of(of, uid, name).get("value", 0) for of in (self.now, self.before))
        return float(max(0.0, now - before))

    def gauge(self, uid: str, name: str) -> float:
        """Return the newest value of a gauge; 0 before the first."""
        return float(_of(self.now, uid, name).get("value", 0.0))

    def kind(self, uid: str) -> str:
        """Return what the calls of an operator wait for: a key of :data:`ADVICE`."""
        task, most = self.task, self.gauge(uid, "calls_most")
        wall = task.wall_ms or 1
        under_way = self.mean(uid, "service")
        is_full = self.mean(uid, "full") >= _MOST
        rules = (
            ("next", task.blocked_ms >= _MOST * wall),
            ("breaker", self.mean(uid, "breaker") >= _MOST),
            ("us", max(self.mean(uid, "loop"), task.busy_ms / wall) >= _BUSY),
            ("service", under_way >= _ALL * most),
            ("rate", self.mean(uid, "rate") >= _MOST),
            ("retries", self.mean(uid, "retries") >= _MOST * most),
            ("order", self.mean(uid, "order") >= _MOST),
            ("rows", not is_full),
            ("bytes", self.mean(uid, "bytes") >= _MOST),
            ("service", under_way >= _MOST * most),
        )
        return next((kind for kind, holds in rules if holds), "us")


def call_stages(
    reports: Iterable[CallReport],
    metrics: _Metrics,
    rates: Mapping[str, float],
) -> tuple[CallStage, ...]:
    """Return the stages whose calls wait.

    Args:
        reports: of the tasks.
        metrics: of all tasks since the start of the attempt, in sum.
        rates: of operators that have one, in calls a second.
    """
    by_operator: dict[str, list[CallReport]] = {}
    for report in reports:
        for uid in report.operators:
            by_operator.setdefault(uid, []).append(report)
    return tuple(
        _stage(uid, mine, metrics.get(uid, {}), rates.get(uid)) for uid, mine in by_operator.items()
    )


def verdict_of_calls(stages: Iterable[CallStage], verdict: Verdict | None) -> Verdict | None:
    """Return the stage of calls that limits a job, or else the verdict about its other stages.

    Args:
        stages: of calls.
        verdict: the stage for which others wait; None if there is none.
    """
    limits = [
        stage for stage in stages if stage.full >= _MOST and stage.waits_for not in ("rows", "next")
    ]
    if not limits:
        return verdict
    stage = max(limits, key=lambda limit: limit.full)
    return Verdict(
        f"calls-{stage.waits_for}",
        stage.stage,
        None,
        min(1.0, stage.full),
        stage.text,
        stage.advice,
    )


def _stage(
    uid: str, reports: Sequence[CallReport], metrics: Mapping[str, Any], rate: float | None
) -> CallStage:
    kinds = Counter(report.kind(uid) for report in reports)
    kind = min(kinds, key=lambda name: (-kinds[name], [*ADVICE].index(name)))
    sums = {
        wait: sum(report.mean(uid, wait) for report in reports)
        for wait in ("service", "rate", "breaker", "retries")
    }
    present = max((report.gauge(uid, "call_rate") for report in reports), default=0.0)
    p50, p99 = _quantiles(uid, reports, metrics)
    errors = {
        name: number
        for name, (number, _) in metrics.get("call_error_kinds", _NONE)["values"].items()
    }
    is_slowed = rate is not None and present < _LOWERED * rate
    stage = CallStage(
        operator=uid,
        stage=reports[0].task.role,
        tasks=len(reports),
        most=round(sum(report.gauge(uid, "calls_most") for report in reports)),
        under_way=round(sums["service"], 2),
        for_rate=round(sums["rate"], 2),
        for_breaker=round(sums["breaker"], 2),
        for_retries=round(sums["retries"], 2),
        full=round(max(report.mean(uid, "full") for report in reports), 3),
        busy=round(max(max(report.mean(uid, "loop"), _busy(report.task)) for report in reports), 3),
        per_second=round(sum(_per_second(report, uid) for report in reports), 2),
        rate=None if rate is None else round(present, 3),
        rate_asked=rate,
        p50_ms=p50,
        p99_ms=p99,
        errors=errors,
        last_error=metrics.get("call_error_kinds", _NONE)["last"],
        waits_for="service" if kind == "bytes" else kind,
        text="",
        advice=ADVICE["slowed" if kind == "rate" and is_slowed else kind],
    )
    where = "" if kinds[kind] == len(reports) else f", in {kinds[kind]} of {len(reports)} tasks"
    return stage.with_text(_sentence(kind, stage) + where)


def _busy(task: Task) -> float:
    return task.busy_ms / (task.wall_ms or 1)


def _per_second(report: CallReport, uid: str) -> float:
    return report.added(uid, "calls") / report.seconds if report.seconds > 0 else 0.0


def _sentence(kind: str, stage: CallStage) -> str:
    """Return what limits a stage, with the evidence."""
    uid, of_all = stage.operator, f"{_number(stage.under_way)} of {stage.most} calls are under way"
    times = (
        ""
        if stage.p50_ms is None
        else f", for {_ms(stage.p50_ms)} in the median and {_ms(stage.p99_ms)} at p99"
    )
    errors = ", ".join(f"{name} {count(number)}" for name, number in stage.errors.items()) or "none"
    rate = f"{stage.rate or 0:g}/s"
    if stage.rate_asked is not None and (stage.rate or 0.0) < _LOWERED * stage.rate_asked:
        rate += f" of {stage.rate_asked:g}/s, lowered by answers of 429"
    work = f"its event loop or its task works {percent(stage.busy)} of the time"
    us = f"{work}, and {of_all}"
    if stage.busy < _BUSY:
        us = f"rows wait for room, {of_all}, and {work}: threads wait for Python's lock, or for a processor"
    sentences = {
        "service": f"{uid} waits for its service: {of_all}, so in_flight= is full{times}",
        "bytes": f"{uid} waits for its service: {of_all}, so in_flight_bytes= is full{times}",
        "rate": f"{uid} waits for its rate: {_number(stage.for_rate)} calls wait for a token, at {rate}",
        "breaker": f"{uid} is paused by its breaker: the last error was {stage.last_error or 'none'}",
        "retries": f"{uid} waits for its next attempts: {_number(stage.for_retries)} of {stage.most} calls have "
        f"failed; errors so far: {errors}",
        "order": f"{uid} waits for the order: results behind a slow call fill in_flight_bytes=, and {of_all}",
        "us": f"{uid} waits for us: {us}",
        "rows": f"{uid} waits for rows: {of_all}",
        "next": f"{uid} waits for the stages behind it: {of_all}",
    }
    return sentences[kind]


def _number(calls: float) -> str:
    return f"{calls:.0f}" if calls >= 10 else f"{calls:.1f}"


def _ms(ms: float | None) -> str:
    return f"{ms or 0:.0f} ms" if (ms or 0) < 10_000 else f"{(ms or 0) / 1000:.0f} s"


#: A tally without texts.
_NONE: Final[Mapping[str, Any]] = {"values": {}, "last": ""}


def _of(metrics: _Metrics, uid: str, name: str) -> Mapping[str, Any]:
    return metrics.get(uid, {}).get(name, {})


def _tally(metrics: _Metrics, uid: str, name: str) -> Mapping[str, Any]:
    values: Mapping[str, Any] = _of(metrics, uid, name).get("values", {})
    return values


def _quantiles(
    uid: str, reports: Sequence[CallReport], metrics: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile in ms: of attempts that have ended now, else of all."""
    bounds: Sequence[float] = metrics.get("call_seconds", {}).get("bounds", ())
    counts = [0] * (len(bounds) + 1)
    for report in reports:
        now = _of(report.now, uid, "call_seconds").get("counts", [])
        before = _of(report.before, uid, "call_seconds").get("counts") or [0] * len(now)
        if len(now) == len(before) == len(counts):
            counts = [n + a - b for n, a, b in zip(counts, now, before, strict=True)]
    if not sum(counts):
        counts = metrics.get("call_seconds", {}).get("counts", [])
    return quantile(bounds, counts, 0.5), quantile(bounds, counts, 0.99)


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """Return a quantile of a histogram of seconds in ms, as Prometheus's histogram_quantile() does; None without numbers.

    Args:
        bounds: upper limits of the buckets but the last one, which has none.
        counts: numbers in each.
        part: of all numbers, 0 to 1.
    """
    rank, below = part * sum(counts), 0
    if not rank:
        return None
    for at, number in enumerate(counts):
        if number and below + number >= rank:
            if at == len(bounds):
                break
            low = bounds[at - 1] if at else 0.0
            return round(1000 * (low + (bounds[at] - low) * (rank - below) / number), 1)
        below += number
    return 1000 * bounds[-1] if bounds else None
