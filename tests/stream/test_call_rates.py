"""The rates of map_async(): tokens and AIMD against plain models with a clock of their own, values, and wrong arguments."""

import asyncio
import itertools
import math
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate._units import parse_rate, rate_text
from headgate.errors import OptionError, UnknownColumnError
from headgate.source import NumberSequenceSource
from headgate.stream import Retry, stream
from headgate.stream.graph.call_rates import PERIOD, TokenLink
from headgate.stream.job import tokens
from headgate.stream.job.tokens import ADJUST, LEASE, STEP, RateLimits, TokenPool, Tokens
from headgate.stream.operators.calls import breaker as call_breaker
from headgate.stream.operators.calls.breaker import LEAST
from headgate.stream.operators.calls.pace import asks_for_less
from headgate.stream.operators.calls.tokens import EXPIRY, CallTokens

NUMBER = pa.schema([("id", pa.int64())])
RATES = st.sampled_from([0.01, 0.5, 1, 3, 10, 250, 5000])


def unchanging(rate):
    return RateLimits(rate, rate)


class Holders:
    """Tasks that get tokens late, use some of them, and say so late; nobody uses a token that was lost for a lease."""

    def __init__(self, number, draw):
        self.draw, self.holders = draw, [(at, "") for at in range(number)]
        self.held = dict.fromkeys(self.holders, 0)
        self.used_at, self.unsaid = [], {holder: [0, 0] for holder in self.holders}

    def use(self, holder, now):
        number = self.draw.randint(0, self.held[holder])
        self.held[holder] -= number
        self.used_at += [now] * number
        self.unsaid[holder][0] += number
        back = self.draw.randint(0, self.held[holder]) if self.draw.random() < 0.3 else 0
        self.held[holder] -= back
        self.unsaid[holder][1] += back

    def lose(self, holder, now):
        """End a task: some of its tokens are used, at the latest at the end of the lease."""
        for _ in range(self.draw.randint(0, self.held.pop(holder))):
            self.used_at.append(now + self.draw.random() * LEASE)
        del self.unsaid[holder]
        self.holders.remove(holder)


def most_in_any_time(times, rate):
    """Return by how much the uses of any time are above the rate, at most: with both ends in it."""
    times = sorted(times)
    lowest, most = math.inf, 0.0
    for number, at in enumerate(times):
        # Of a time from an earlier use to this one: uses - rate * time.
        lowest = min(lowest, number - rate * at)
        most = max(most, number + 1 - rate * at - lowest)
    return most


@settings(max_examples=150, deadline=None)
@given(RATES, st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_no_time_has_more_than_the_rate_and_the_burst(rate, number, seed, is_slowed):
    draw = random.Random(seed)
    limits = RateLimits(rate, rate / 10) if is_slowed else unchanging(rate)
    pool, holders, now = TokenPool(limits, 0.0, 1.0), Holders(number, draw), 0.0
    for _ in range(150):
        now += draw.choice([0, 0.01, PERIOD, 1, 1 / rate]) * draw.random()
        holder = draw.choice(holders.holders)
        event = draw.random()
        if event < 0.4:
            for lucky, part in pool.deal(now).items():
                holders.held[lucky] += part
        elif event < 0.7:
            holders.use(holder, now)
        elif event < 0.97 or len(holders.holders) == 1:
            used, returned = holders.unsaid[holder]
            holders.unsaid[holder] = [0, 0]
            slowed = draw.randint(0, used) if is_slowed else 0
            wanted = draw.choice([0, 1, 5, 10**6])
            pool.report(holder, now, wanted=wanted, used=used, returned=returned, slowed=slowed)
            assert limits.lowest <= pool.rate <= limits.highest
        else:
            pool.forget(lambda lost, gone=holder: lost == gone, now)
            holders.lose(holder, now)
    assert most_in_any_time(holders.used_at, rate) <= limits.burst + 1e-3


@settings(max_examples=100, deadline=None)
@given(RATES, st.integers(1, 40), st.integers(1, 100))
def test_all_that_ask_get_tokens_and_the_rate_is_used(rate, number, wanted):
    """Tasks that use each token at once get shares that differ by what a deal cannot divide."""
    pool, totals = TokenPool(unchanging(rate), 0.0, 1.0), dict.fromkeys(range(number), 0)
    now, period = 0.0, max(PERIOD, 1 / rate)
    for task in totals:
        pool.report((task, ""), now, wanted=wanted, used=0, returned=0, slowed=0)
    for _ in range(200):
        dealt = pool.deal(now)
        for (task, _), part in dealt.items():
            totals[task] += part
            pool.report((task, ""), now, wanted=wanted, used=part, returned=0, slowed=0)
        now += period
    possible = 200 * min(rate * period, number * wanted)
    assert sum(totals.values()) >= possible * 0.95 - 2
    assert max(totals.values()) - min(totals.values()) <= 1


def test_tokens_that_come_back_go_to_others():
    pool = TokenPool(unchanging(10), 0.0, 1.0)
    for task in "ab":
        pool.report((task, ""), 0.0, wanted=1, used=0, returned=0, slowed=0)
    ((first, _),) = pool.deal(0.0)
    pool.report((first, ""), 0.0, wanted=0, used=0, returned=1, slowed=0)
    assert pool.deal(0.0) == {({"a": "b", "b": "a"}[first], ""): 1}
    assert pool.deal(0.0) == {}


def test_tokens_of_a_lost_task_are_out_for_a_lease_and_do_not_come_back():
    pool = TokenPool(unchanging(1), 0.0, 1.0)
    pool.report(("a", ""), 0.0, wanted=1, used=0, returned=0, slowed=0)
    assert pool.deal(0.0) == {("a", ""): 1}
    pool.forget(lambda holder: holder[0] == "a", 0.5)
    pool.report(("b", ""), 0.5, wanted=5, used=0, returned=0, slowed=0)
    assert pool.deal(1.4) == {}
    assert pool.due() == pytest.approx(0.5 + LEASE)
    assert pool.deal(0.5 + LEASE) == {("b", ""): 1}
    # A late report of a task that is forgotten changes nothing.
    pool.report(("a", ""), 1.5, wanted=0, used=0, returned=9, slowed=0)
    assert pool.deal(1.6) == {}


class PlainRate:
    """The rate after each second with its calls and those that were slowed."""

    def __init__(self, limits):
        self.limits, self.rate = limits, limits.highest

    def second(self, used, slowed):
        self.rate = min(self.limits.highest, self.rate + self.limits.highest * STEP)
        if slowed:
            self.rate *= 1 - min(1, slowed / max(1, used)) / 2
        self.rate = max(self.limits.lowest, self.rate)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=80))
def test_the_rate_falls_by_shares_and_grows_by_steps(seconds):
    limits = RateLimits(100, 2)
    pool, model = TokenPool(limits, 0.0, 1.0), PlainRate(limits)
    for now, (used, slowed) in enumerate(seconds):
        pool.report(("a", ""), now, wanted=0, used=used, returned=0, slowed=slowed)
        pool.deal(now + ADJUST)
        model.second(used, slowed)
        assert pool.rate == pytest.approx(model.rate)


@pytest.mark.parametrize("share", [0, 0.05, 1])
def test_a_rate_comes_to_what_the_service_takes(share):
    """Of calls above 40 a second all are slowed, and a share of the others at random."""
    pool, now, draw = TokenPool(RateLimits(100, 1), 0.0, 1.0), 0.0, random.Random(1)
    rates = []
    for _ in range(120):
        calls = int(pool.rate)
        slowed = max(0, calls - 40) + sum(draw.random() < share for _ in range(min(calls, 40)))
        pool.report(("a", ""), now, wanted=0, used=calls, returned=0, slowed=slowed)
        now += ADJUST
        pool.deal(now)
        rates.append(pool.rate)
    last = sum(rates[60:]) / 60
    assert {0: 40 <= last <= 48, 0.05: 38 <= last <= 48, 1: last < 10}[share]


def use_all(pools, now):
    """Deal, and say of each token that it was used at once; return the values."""
    dealt = pools.deal(now)
    for holder, number in dealt.items():
        pools.report(holder, now, wanted=0, used=number, returned=0, slowed=0)
    return [value for (_, value), number in dealt.items() for _ in range(number)]


@pytest.mark.parametrize("most", [10**6, 20])
def test_each_value_has_its_rate_and_few_are_remembered(monkeypatch, most):
    monkeypatch.setattr(tokens, "MOST", most)
    pools, draw, used, now = Tokens(unchanging(2)), random.Random(7), {}, 0.0
    largest = 0
    for _ in range(400):
        now += PERIOD
        for value in draw.sample(range(10**6), 20):
            pools.report(("a", f"{value}"), now, wanted=1, used=0, returned=0, slowed=0)
        for value in (f"{draw.randrange(3)}" for _ in range(3)):
            pools.report(("a", value), now, wanted=9, used=0, returned=0, slowed=0)
        for value in use_all(pools, now):
            used.setdefault(value, []).append(now)
        largest = max(largest, pools.num_pools)
    limit = pools.limits.burst
    assert all(most_in_any_time(times, 2) <= limit + 1e-3 for times in used.values())
    if most > 20:
        # Those of the last half second, each with a token that is not made up for, and three.
        assert largest <= 20 * (0.5 / PERIOD + 4) + 3
        assert len(used) > 7000
    else:
        assert largest <= 20 + tokens._SHARED
    for _ in range(20):
        now += 100
        use_all(pools, now)
    assert (pools.num_pools, pools.due()) == (0, None)
    assert not pools._queue
    assert not pools._times
    assert not pools._lowered


def test_values_that_share_a_pool_share_its_rate(monkeypatch):
    monkeypatch.setattr(tokens, "MOST", 0)
    monkeypatch.setattr(tokens, "_SHARED", 1)
    pools, counts = Tokens(unchanging(10)), {"a": 0, "b": 0}
    for tick in range(200):
        for value in counts:
            pools.report((1, value), tick * PERIOD, wanted=1, used=0, returned=0, slowed=0)
        for (task, value), number in pools.deal(tick * PERIOD).items():
            counts[value] += number
            pools.report((task, value), tick * PERIOD, wanted=1, used=number, returned=0, slowed=0)
    assert 190 <= sum(counts.values()) <= 200
    assert abs(counts["a"] - counts["b"]) <= 1


def test_a_rate_that_begins_empty_saves_up_from_then_on():
    pools = Tokens(unchanging(0.1))
    pools.begin_empty(100.0)
    pools.report((1, "a"), 101.0, wanted=1, used=0, returned=0, slowed=0)
    assert pools.deal(101.0) == {}
    assert pools.due() == pytest.approx(110.0)
    assert pools.deal(110.001) == {(1, "a"): 1}
    pools.report((1, "b"), 111.0, wanted=1, used=0, returned=0, slowed=0)
    assert pools.deal(111.0) == {(1, "b"): 1}


def test_a_value_of_a_slow_rate_is_in_the_queue_a_few_times_only(monkeypatch):
    monkeypatch.setattr(tokens, "_SHARED", 4)
    pools, now = Tokens(unchanging(1 / 3600)), 0.0
    for _ in range(500):
        now += PERIOD
        pools.report((1, "a"), now, wanted=1, used=0, returned=0, slowed=0)
        pools.report((1, "b"), now, wanted=0, used=0, returned=0, slowed=0)
        use_all(pools, now)
        assert len(pools._queue) <= 2 * 2 + 4
    pools.report((1, "a"), now, wanted=1, used=0, returned=0, slowed=0)
    assert use_all(pools, 3601) == ["a"]


# --- the tokens of a task ---


def test_tokens_are_spread_and_those_left_over_come_back():
    waiting = CallTokens(10)
    for call in range(3):
        waiting.wait("a", call, has_place=False)
    assert waiting.report() == [("a", 3, 0, 0, 0)]
    assert waiting.report() == []
    waiting.take([("a", 4)], 1.0)
    assert list(waiting.begin(1.0)) == [0]
    assert waiting.due() == pytest.approx(1 + PERIOD / 4)
    assert list(waiting.begin(1 + PERIOD / 5)) == []
    assert list(waiting.begin(1 + PERIOD)) == [1, 2]
    assert waiting.report() == [("a", 1, 3, 0, 0)]
    assert waiting.due() == pytest.approx(1 + EXPIRY)
    assert list(waiting.begin(1 + EXPIRY)) == []
    assert waiting.report() == [("a", 0, 0, 1, 0)]
    assert waiting.due() is None
    assert not waiting._values


def test_places_bound_calls_and_further_attempts_need_none():
    waiting = CallTokens(1)
    for call, name in enumerate("aabb"):
        waiting.wait(name, call, has_place=False)
    waiting.take([("a", 2), ("b", 2)], 0.0)
    assert list(waiting.begin(0.09)) == [0]
    waiting.wait("a", "again", has_place=True)
    assert list(waiting.begin(0.09)) == ["again"]
    waiting.leave()
    assert list(waiting.begin(0.09)) == [2]
    waiting.put_back("b")
    assert sorted(waiting.report()) == [("a", 5, 2, 0, 0), ("b", 2, 0, 1, 0)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_no_call_begins_without_a_token_and_none_gets_lost(seed, places):
    """Of each value: tokens taken = used + given back + held. Calls begin in the order of their value."""
    draw = random.Random(seed)
    task, now, numbers = CallTokens(places), 0.0, itertools.count()
    waiting, running = {name: [] for name in "abc"}, []
    balance = dict.fromkeys("abc", 0)
    for _ in range(200):
        now += draw.random() * 0.05
        name, event = draw.choice("abc"), draw.random()
        if event < 0.4:
            call = (name, next(numbers))
            task.wait(name, call, has_place=False)
            waiting[name].append(call)
        elif event < 0.6:
            number = draw.randint(1, 4)
            task.take([(name, number)], now)
            balance[name] += number
        elif event < 0.7 and running:
            running.remove(draw.choice(running))
            task.leave()
        elif event < 0.8:
            for value, wanted, used, returned, _ in task.report():
                balance[value] -= used + returned
                assert wanted >= balance[value] >= 0
        for call in task.begin(now):
            assert waiting[call[0]].pop(0) == call
            running.append(call)
        assert len(running) <= places
        assert task.num_waiting == sum(map(len, waiting.values()))
    now += 1
    for call in task.begin(now):
        waiting[call[0]].remove(call)
    for value, _, used, returned, _ in task.report():
        balance[value] -= used + returned
    assert not any(balance.values())


# --- the operator ---


class Dealer:
    """Deals tokens to a task as the test says, and notes its reports."""

    def __init__(self):
        self.reports = []
        self.link = TokenLink(self.reports.extend)

    def wanted(self):
        return {value: wanted for value, wanted, *_ in self.reports}


def operator(function, rows=NUMBER, **options):
    """Return the tasks of an operator, and what deals its tokens."""
    dealers = []

    def more(_):
        dealers.append(Dealer())
        return {"tokens": dealers[-1].link}

    called = stream(NumberSequenceSource(0, 1), parallelism=1)
    if rows is not NUMBER:
        called = called.map(lambda batch: batch, schema=rows)
    called = called.map_async(function, schema=rows, **options)
    return OperatorTasks(called._edges[0].node.make, [], more=more), dealers


def figure(task, name):
    return task._context.metrics.plain()[name]["value"]


async def answer(row):
    return row


def quiet(task):
    def poll():
        task.poll(is_end=True)
        return task.is_quiet

    return poll


@pytest.mark.parametrize("is_plain", [True, False])
def test_calls_wait_for_tokens_through_a_checkpoint(is_plain):
    begun = []

    def plain(row):
        begun.append(row["id"])
        return row

    async def call(row):
        return plain(row)

    tasks, dealers = operator(plain if is_plain else call, rate="10/s", in_flight=4)
    (task,) = tasks.tasks
    task.process(pa.record_batch([pa.array(range(10))], schema=NUMBER))
    wait_until(lambda: dealers[0].wanted() == {"": 4})
    assert task.is_full
    assert figure(task, "calls_waiting") == 4
    assert figure(task, "call_rate") == 10
    dealers[0].link.on_tokens([("", 2)], 7.5)
    wait_until(lambda: len(begun) == 2)
    wait_until(lambda: task.poll(is_end=False))
    assert figure(task, "call_rate") == 7.5
    tasks.checkpoint(1)
    (task,) = tasks.tasks
    wait_until(lambda: dealers[1].wanted() == {"": 4})
    assert len(begun) == 2
    is_quiet = quiet(task)

    def deal():
        dealers[1].link.on_tokens([("", 1)], 10.0)
        return is_quiet()

    wait_until(deal)
    assert [row["id"] for row in tasks.take()] == list(range(10))
    assert set(begun) == set(range(10))
    assert len(begun) <= 11, "at most one was under way"
    task.close()


HOSTS = pa.schema([("id", pa.int64()), ("host", pa.string())])


def test_a_value_that_waits_stops_no_other_one():
    tasks, (dealer,) = operator(
        answer, HOSTS, rate="1/s", rate_by="host", in_flight=2, ordered=False
    )
    (task,) = tasks.tasks
    hosts = [*["slow"] * 100, "quick", None, "x" * 200]
    task.process(pa.record_batch([pa.array(range(103)), pa.array(hosts)], schema=HOSTS))
    wait_until(lambda: len(dealer.wanted()) == 4)
    wanted = dealer.wanted()
    assert (wanted['"slow"'], wanted['"quick"'], wanted["null"]) == (100, 1, 1)
    (long,) = wanted.keys() - {'"slow"', '"quick"', "null"}
    assert len(long) < 150
    dealer.link.on_tokens([('"quick"', 1), ("null", 1), (long, 1)], 1.0)
    emitted = []

    def others():
        task.poll(is_end=False)
        emitted.extend(row["id"] for row in tasks.take())
        return sorted(emitted) == [100, 101, 102]

    wait_until(others)
    task.close()


def test_a_429_is_told_and_each_attempt_takes_a_token():
    class TooMany(Exception):
        status_code = 429

    async def call(row, context):
        if context.attempt == 1:
            raise TooMany
        if context.attempt == 2:
            raise Retry("429", after=0)
        if context.attempt == 3:
            raise ValueError("else")
        return row

    tasks, (dealer,) = operator(call, rate="10/s", retries=3, backoff=0)
    (task,) = tasks.tasks
    task.process(pa.record_batch([pa.array([0])], schema=NUMBER))
    wait_until(lambda: dealer.reports)
    dealer.link.on_tokens([("", 9)], 10.0)
    wait_until(quiet(task))
    # Tokens that are left come back.
    wait_until(lambda: sum(used + returned for _, _, used, returned, _ in dealer.reports) == 9)
    assert sum(used for _, _, used, _, _ in dealer.reports) == 4
    assert sum(slowed for *_, slowed in dealer.reports) == 2
    assert figure(task, "calls_slowed") == 2
    task.close()


def test_calls_that_wait_for_tokens_do_not_begin_in_a_pause():
    async def fail(row):
        raise ConnectionError

    tasks, (dealer,) = operator(
        fail, rate="1000/s", in_flight=64, breaker=0.5, retries=10**6, backoff=0
    )
    (task,) = tasks.tasks
    task.process(pa.record_batch([pa.array(range(200))], schema=NUMBER))
    wait_until(lambda: dealer.wanted() == {"": 64})
    dealer.link.on_tokens([("", 20)], 1000.0)
    wait_until(lambda: figure(task, "calls_paused") == 1)
    calls = figure(task, "calls")
    dealer.link.on_tokens([("", 100)], 1000.0)
    wait_until(lambda: sum(returned for *_, returned, _ in dealer.reports) > 0)
    assert figure(task, "calls") <= calls + 1
    task.close()


def test_a_value_that_waits_stops_no_other_one_behind_a_pause(monkeypatch):
    """The call whose failure begins the pause is the first one behind it, and has no token for an hour."""
    monkeypatch.setattr(call_breaker, "FIRST", 0.05)
    is_down = [True]

    async def call(row):
        if is_down[0]:
            is_down[0] = row["host"] != "slow"
            raise ConnectionError
        return row

    tasks, (dealer,) = operator(
        call,
        HOSTS,
        rate="1/h",
        rate_by="host",
        breaker=0.9,
        retries=100,
        backoff=0,
        ordered=False,
        in_flight=30,
    )
    (task,) = tasks.tasks
    hosts = [*["quick"] * (LEAST - 1), "slow"]
    task.process(pa.record_batch([pa.array(range(LEAST)), pa.array(hosts)], schema=HOSTS))
    wait_until(lambda: len(dealer.wanted()) == 2)
    dealer.link.on_tokens([('"quick"', LEAST - 1)], 1.0)
    wait_until(lambda: figure(task, "call_retries") == LEAST - 1)
    dealer.link.on_tokens([('"slow"', 1)], 1.0)
    wait_until(lambda: figure(task, "calls_paused") == 1)
    emitted = []

    def others():
        dealer.link.on_tokens([('"quick"', 1)], 1.0)
        task.poll(is_end=False)
        emitted.extend(row["id"] for row in tasks.take())
        return sorted(emitted) == [*range(LEAST - 1)]

    wait_until(others)
    assert figure(task, "calls_paused") == 0
    task.close()


class Odd(Exception):
    @property
    def response(self):
        raise RuntimeError("no response")


class Answer(Exception):
    def __init__(self, **attributes):
        super().__init__()
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("error", "is_less"),
    [
        (Retry("busy", after=1), True),
        (Retry("once more"), False),
        (Answer(status=429), True),
        (Answer(code=429), True),
        (Answer(response=Answer(status_code=429)), True),
        (Answer(response=Answer(status_code=503)), False),
        (Answer(response=None), False),
        (Odd(), False),
        (asyncio.CancelledError(), False),
    ],
)
def test_answers_that_ask_for_less(error, is_less):
    assert asks_for_less(error) is is_less


# --- arguments ---


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("500/s", 500),
        ("30/min", 0.5),
        ("1000 / h", 1000 / 3600),
        ("0.5/second", 0.5),
        ("3/DAY", 3 / 86400),
    ],
)
def test_rates_are_read(text, per_second):
    assert parse_rate(text) == pytest.approx(per_second)
    assert parse_rate(rate_text(parse_rate(text))) == pytest.approx(per_second, rel=1e-4)


@pytest.mark.parametrize(
    "rate",
    [
        "fast",
        "",
        "500",
        "500/",
        "/s",
        "-1/s",
        "1e3/s",
        "0/s",
        "1/week",
        "2000000/s",
        500,
        0.5,
        True,
    ],
)
def test_other_rates_are_refused(rate):
    with pytest.raises(OptionError, match="rate=") as error:
        stream(NumberSequenceSource(0, 1)).map_async(answer, schema=NUMBER, rate=rate)
    assert "500/s" in str(error.value)


def test_options_of_a_rate_are_checked():
    rows = stream(NumberSequenceSource(0, 1)).map(lambda batch: batch, schema=HOSTS)

    def call(**options):
        rows.map_async(answer, schema=HOSTS, **options)

    for options, match in [
        ({"rate_by": "host"}, "rate_by='host' without rate="),
        ({"rate_min": "1/s"}, "rate_min='1/s' without rate="),
        ({"rate_name": "a"}, "rate_name='a' without rate="),
        ({"rate": "1/s", "rate_min": "2/s"}, "above rate='1/s'"),
        ({"rate": "1/s", "rate_min": 1}, "rate_min=1 is not a rate"),
        ({"rate": "1/s", "rate_by": "host", "batch_rows": 2}, "batches"),
        ({"rate": "1/s", "rate_by": 3}, "rate_by=3"),
        ({"rate": "1/s", "rate_name": ""}, "rate_name"),
    ]:
        with pytest.raises(OptionError, match=match):
            call(**options)
    with pytest.raises(UnknownColumnError):
        call(rate="1/s", rate_by="hosts")
    floats = pa.schema([("id", pa.float64())])
    with pytest.raises(OptionError, match="type double"):
        rows.map(lambda batch: batch, schema=floats).map_async(
            answer, schema=floats, rate="1/s", rate_by="id"
        )
