"""The operator of map_async(rate=): calls that wait for tokens, values of a column, answers of 429, and wrong arguments."""

import asyncio

import pyarrow as pa
import pytest
from tests.kit.operator_tasks import OperatorTasks
from tests.kit.waiting import wait_until

from headgate._units import parse_rate, rate_text
from headgate.errors import OptionError, UnknownColumnError
from headgate.source import NumberSequenceSource
from headgate.stream import Retry, stream
from headgate.stream.graph.call_rates import TokenLink
from headgate.stream.operators.calls import breaker as call_breaker
from headgate.stream.operators.calls.answers import asked_wait, asks_for_less
from headgate.stream.operators.calls.breaker import LEAST

NUMBER = pa.schema([("id", pa.int64())])


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


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Retry("busy", after=2), 2),
        (Retry("once more"), None),
        (Answer(status=429, headers={"Retry-After": "3"}), 3),
        (Answer(response=Answer(status_code=503, headers={"retry-after": "1.5"})), 1.5),
        (Answer(status_code=429, response=Answer(headers={"RETRY-AFTER": "4"})), 4),
        (Answer(code=429, headers={"Retry-After": "1", "Retry-After-Ms": "250"}), 0.25),
        (Answer(code=429, headers={"Retry-After": "3", "Retry-After-Ms": "soon"}), 3),
        (Answer(code=429, headers={"Retry-After": "Fri, 01 Jan 2021 00:00:00 GMT"}), 0),
        (Answer(code=429, headers={"Retry-After": b"3"}), None),
        (Answer(code=429, headers=None), None),
        (Answer(code=429), None),
        (Answer(status=500, headers={"Retry-After": "3"}), None),
        (Odd(), None),
    ],
)
def test_an_answer_says_how_long_to_wait(error, seconds):
    assert asked_wait(error) == seconds


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
