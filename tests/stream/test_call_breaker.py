"""map_async(breaker=): the rules against a plain model with a clock of its own, and calls of a service that is down."""

import asyncio
import logging
import random

import pyarrow as pa
import pytest
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate.errors import OptionError
from headgate.sink import FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import stream
from headgate.stream.operators.calls import breaker as call_breaker
from headgate.stream.operators.calls.breaker import (
    AGE,
    FIRST,
    LEAST,
    LONGEST,
    MOST,
    CallBreaker,
    described,
)

NUMBER = pa.schema([("id", pa.int64())])


class PlainBreaker:
    """Keeps all outcomes, and looks at the last ones each time."""

    def __init__(self, share):
        self.share, self.outcomes, self.until, self.streak = share, [], None, 0
        self.single, self.good, self.changes = None, 0, 0

    def begin(self, now, call):
        if self.until is not None and (self.single is not None or now < self.until):
            return False
        if self.until is not None:
            self.single = call
        call["changes"] = self.changes
        return True

    def end(self, now, call):
        if call["changes"] != self.changes:
            return
        if self.until is not None:
            assert call is self.single
            self.single = None
            self.good = 0 if call["fails"] else self.good + 1
            if call["fails"]:
                self.pause(now)
            elif self.good == 3:
                self.until, self.streak, self.changes = None, 0, self.changes + 1
            return
        self.outcomes.append((now, call["fails"]))
        last = [fails for at, fails in self.outcomes[-MOST:] if at >= now - AGE]
        if len(last) >= LEAST and sum(last) > self.share * len(last):
            self.pause(now)

    def pause(self, now):
        self.until, self.streak = now + min(FIRST * 2**self.streak, LONGEST), self.streak + 1
        self.outcomes, self.good, self.single = [], 0, None
        self.changes += 1


@pytest.mark.parametrize("seed", range(20))
def test_calls_begin_when_the_plain_model_lets_them(seed):
    draw = random.Random(seed)
    share = draw.choice([0.1, 0.5, 0.9])
    rules, plain = CallBreaker(share), PlainBreaker(share)
    now, active, is_down, pauses = 0.0, [], False, 0
    for _ in range(3000):
        now += draw.choice([0, 0.01, 0.2, 3])
        if draw.random() < 0.005:
            is_down = not is_down
        if active and draw.random() < 0.5:
            call = active.pop(draw.randrange(len(active)))
            before = rules.resumes_at
            has_changed = rules.end(now, call["period"], has_failed=call["fails"])
            plain.end(now, call)
            assert has_changed == (rules.resumes_at != before)
            pauses += has_changed and rules.resumes_at is not None
        elif len(active) < 50:
            call = {"fails": draw.random() < (0.97 if is_down else 0.03)}
            call["period"] = rules.begin(now)
            assert plain.begin(now, call) == (call["period"] is not None)
            if call["period"] is not None:
                active.append(call)
        assert rules.resumes_at == plain.until
    assert pauses


def test_a_pause_doubles_up_to_a_minute_and_three_results_end_it():
    rules, now, lengths = CallBreaker(0.5), 0.0, []
    for _ in range(LEAST):
        rules.end(now, rules.begin(now), has_failed=True)
    while len(lengths) < 8:
        lengths.append(rules.resumes_at - now)
        assert rules.begin(now) is None
        now = rules.resumes_at
        period = rules.begin(now)
        assert rules.begin(now) is None, "one call at a time"
        rules.end(now, period, has_failed=True)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]
    now = rules.resumes_at
    for _ in range(3):
        assert rules.resumes_at is not None
        rules.end(now, rules.begin(now), has_failed=False)
    assert rules.resumes_at is None
    assert rules.begin(now) == rules.begin(now)


def test_a_call_that_fails_again_as_the_single_one_says_nothing_once_others_succeed():
    def down():
        rules = CallBreaker(0.5)
        for _ in range(LEAST):
            rules.end(0, rules.begin(0), has_failed=True)
        return rules

    def end(rules, now, **outcome):
        return rules.end(now, rules.begin(now), **outcome)

    rules = down()
    assert end(rules, 1, has_failed=True), "the first time it may be the service"
    assert not end(rules, 3, has_failed=False)
    assert not end(rules, 3, has_failed=True, has_failed_before=True)
    assert not end(rules, 3, has_failed=False)
    assert end(rules, 3, has_failed=False), "three results, and no failure that counts"
    assert rules.resumes_at is None
    rules = down()
    assert end(rules, 1, has_failed=True, has_failed_before=True), "nothing else has been tried"
    assert rules.resumes_at == 3
    assert not end(rules, 3, has_failed=False)
    assert end(rules, 3, has_failed=True), "another call"


def test_few_outcomes_and_old_ones_say_nothing():
    rules = CallBreaker(0.5)
    for at in range(5 * LEAST):
        assert not rules.end(at * AGE / (LEAST - 2), rules.begin(0), has_failed=True)
    rules = CallBreaker(0.5)
    for at in range(1000):
        assert not rules.end(0, rules.begin(0), has_failed=bool(at % 2))


class Down:
    """A service that fails until it is up; it counts calls, and those at the same time."""

    def __init__(self):
        self.is_up, self.calls, self.active, self.most = False, 0, 0, 0

    async def __call__(self, row):
        self.calls += 1
        self.active += 1
        self.most = max(self.most, self.active)
        await asyncio.sleep(0.001)
        self.active -= 1
        if not self.is_up:
            raise ConnectionError("refused")
        return row


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(call_breaker, "FIRST", 0.05)
    monkeypatch.setattr(call_breaker, "LONGEST", 0.05)


def test_calls_pause_while_a_service_is_down(short_pauses, caplog):
    caplog.set_level(logging.INFO, "headgate.stream")
    service, rows = Down(), stream(NumberSequenceSource(0, 1))
    called = rows.map_async(
        service, schema=NUMBER, in_flight=40, retries=10**6, backoff=0.001, breaker=0.5
    )
    tasks = OperatorTasks(called._edges[0].node.make, [])
    (task,) = tasks.tasks

    def figure(name):
        return task._context.metrics.plain()[name]["value"]

    assert figure("calls_paused") == 0
    task.process(pa.record_batch([pa.array(range(100))], schema=NUMBER))
    wait_until(lambda: figure("call_pauses") >= 2)
    assert figure("calls_paused") == 1
    assert task.is_full
    begun, pauses = service.calls, figure("call_pauses")
    service.most = 0
    wait_until(lambda: figure("call_pauses") >= 5)
    assert service.most == 1, "single calls"
    assert service.calls - begun <= figure("call_pauses") - pauses + 1
    tasks.checkpoint(1)
    (task,) = tasks.tasks
    service.is_up = True

    def is_quiet():
        task.poll(is_end=True)
        return task.is_quiet

    wait_until(is_quiet)
    assert [row["id"] for row in tasks.take()] == list(range(100))
    assert figure("calls_paused") == 0
    task.close()
    assert "no call for 0.05 s, since more than a share of 0.5 has failed" in caplog.text
    assert "the last error is ConnectionError: refused" in caplog.text


@pytest.mark.parametrize("in_flight", [2, 3])
def test_a_row_that_always_fails_does_not_keep_the_calls_paused(short_pauses, in_flight):
    service = Down()

    async def call(row):
        await service(row)
        if row["id"] == 0:
            raise ValueError("this row")
        return row

    rows = stream(NumberSequenceSource(0, 1))
    called = rows.map_async(
        call,
        schema=NUMBER,
        in_flight=in_flight,
        retries=10**6,
        backoff=0.002,
        breaker=0.95,
        ordered=False,
    )
    tasks = OperatorTasks(called._edges[0].node.make, [])
    (task,) = tasks.tasks

    def figure(name):
        return task._context.metrics.plain()[name]["value"]

    task.process(pa.record_batch([pa.array(range(2000))], schema=NUMBER))
    wait_until(lambda: figure("call_pauses") >= 3)
    service.is_up = True

    def goes_on():
        task.poll(is_end=False)
        return figure("calls_paused") == 0

    wait_until(goes_on, "all calls go on", 20)
    assert figure("call_pauses") < 20
    task.close()


def test_an_error_is_described_on_one_line_of_200_characters():
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no")

    assert described(ConnectionError("refused\n  by  host")) == "ConnectionError: refused by host"
    assert described(TimeoutError()) == "TimeoutError"
    assert described(Mute()) == "Mute"
    text = described(ValueError("x" * 500))
    assert (len(text), text[:14]) == (200, "ValueError: xx")


def test_a_pause_ends_and_is_a_notice(short_pauses, caplog):
    caplog.set_level(logging.INFO, "headgate.stream")
    service = Down()
    called = stream(NumberSequenceSource(0, 200), parallelism=1).map_async(
        service,
        schema=NUMBER,
        retries=10**6,
        backoff=0.001,
        ordered=False,
        breaker=0.5,
        name="calls",
    )
    batches = []
    with called.sink(FunctionSink(batches.append)).start(parallelism=1) as query:
        wait_until(
            lambda: query.status.metrics.get("calls", {}).get("call_pauses", {}).get("value")
        )
        service.is_up = True
        assert query.await_termination(60)
        notices = query.status.notices
        assert query.status.calls[0].last_error == "ConnectionError: refused"
        assert query.status.calls[0].errors.keys() == {"ConnectionError"}, "by class"
        assert query.status.metrics["calls"]["call_pauses"]["value"] >= 1
    assert sum(notice.startswith("calls has paused its calls") for notice in notices) == 1
    assert sorted(at for batch in batches for at in batch["id"].to_pylist()) == list(range(200))
    assert "all calls go on" in caplog.text


@pytest.mark.parametrize("breaker", [0, 1, 0.0, 1.0, 1.5, float("nan"), "0.5", True])
def test_a_breaker_is_a_share(breaker):
    async def answer(row):
        return row

    with pytest.raises(OptionError, match="breaker="):
        stream(NumberSequenceSource(0, 1)).map_async(answer, schema=NUMBER, breaker=breaker)
