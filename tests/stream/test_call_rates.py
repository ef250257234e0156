"""The rates of map_async(): tokens and AIMD against plain models with a clock of their own, and the tokens of a task."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.stream.graph.call_rates import PERIOD
from headgate.stream.job import tokens
from headgate.stream.job.tokens import ADJUST, LEASE, STEP, RateLimits, TokenPool, Tokens
from headgate.stream.operators.calls.tokens import EXPIRY, CallTokens

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
