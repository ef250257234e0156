"""The verdict on exchanges that feed each other names the cause, wherever it is."""

from dataclasses import replace

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, Theatre
from tests.driver.test_verdict import BLOCKED, IDLE, consumer, producer

from headgate.spark.progress.chain import Link, chain_verdict
from headgate.spark.progress.stats import snapshot

WAITING = [consumer(0, idle=5, reduce=10, sink=85), consumer(1, idle=8, reduce=10, sink=82)]
FED_SLOWLY = [producer(0, source=91, map_=9), producer(1, source=88, map_=12)]
WORKING = [consumer(0, idle=3, reduce=97), consumer(1, idle=7, reduce=93)]
MAPPING = [producer(0, 4, 93, 3), producer(1, 4, 93, 3)]

#: Tasks of A and of B, which reads the rows of A; then the exchange, kind and task of both verdicts.
TABLE = {
    "the reduce of B is slow": ([*BLOCKED, *WAITING], [*BLOCKED, *WORKING], "b", "reduce-busy", 0),
    "the map of B is slow": ([*BLOCKED, *WAITING], [*MAPPING, *IDLE], "b", "map-busy", 0),
    "the map of A is slow": ([*MAPPING, *IDLE], [*FED_SLOWLY, *IDLE], "a", "map-busy", 0),
    "the feed of A is slow": ([*FED_SLOWLY, *IDLE], [*FED_SLOWLY, *IDLE], "a", "jvm-feed", 0),
    "the reduce of A is slow": (
        [*BLOCKED, *WORKING],
        [*FED_SLOWLY, *IDLE],
        "a",
        "reduce-busy",
        0,
    ),
    "what Spark does between A and B is slow": (
        [*BLOCKED, *WAITING],
        [*FED_SLOWLY, *IDLE],
        "a",
        "sink",
        0,
    ),
    "what is behind B is slow": ([*BLOCKED, *WAITING], [*BLOCKED, *WAITING], "b", "sink", 0),
    "A waits for B, and what B does is not clear": (
        [*BLOCKED, *WAITING],
        [producer(0, 30, 40, 10, 20), consumer(0, 50, 50)],
        None,
        None,
        None,
    ),
}


def chained(first, second):
    """Return A and B as links, each with the other one."""
    a, b = Link("a", tuple(first), 20.0), Link("b", tuple(second), 20.0)
    return replace(a, feeds=(b,)), replace(b, fed_by=(a,))


@pytest.mark.parametrize("name", TABLE)
def test_both_name_the_cause(name):
    first, second, exchange, kind, task = TABLE[name]
    for link in chained(first, second):
        found = chain_verdict(link)
        if kind is None:
            assert found is None
            continue
        assert (found.kind, found.task) == (kind, task)
        is_own = exchange == link.exchange
        assert found.exchange == ("" if is_own else exchange)
        assert found.text.startswith(f"exchange {exchange}: ") is not is_own


def test_the_reduce_of_a_slow_exchange_is_found_although_its_own_producers_do_not_wait():
    # Its producers wait for less than half of their time, so alone it is not judged.
    tasks = [producer(0, 30, 30, 10, 30), consumer(0, idle=20, reduce=80)]
    alone = Link("a", tuple(tasks), 20.0)
    assert chain_verdict(alone) is None
    _, second = chained(tasks, [*FED_SLOWLY, *IDLE])
    assert (chain_verdict(second).kind, chain_verdict(second).exchange) == ("reduce-busy", "a")


def test_the_cause_is_found_over_several_exchanges():
    idle = Link("a", (*BLOCKED, *WAITING), 20.0)
    for name in ("c", "b"):
        # Built from the end: a feeds b feeds c feeds d.
        later = idle.feeds or (Link("d", (*BLOCKED, *WORKING), 20.0),)
        idle = replace(idle, feeds=(Link(name, (*BLOCKED, *WAITING), 20.0, feeds=later),))
    found = chain_verdict(idle)
    assert (found.exchange, found.kind) == ("d", "reduce-busy")
    assert found.text.startswith("exchange d: reduce 0 is busy 97 %")


def test_two_exchanges_before_one_of_which_is_slow():
    fast = Link("a", (*BLOCKED, *IDLE), 1.0)
    slow = Link("b", (*MAPPING, *IDLE), 20.0)
    last = Link("c", (*FED_SLOWLY, *IDLE), 20.0, fed_by=(fast, slow))
    assert (chain_verdict(last).exchange, chain_verdict(last).kind) == ("b", "map-busy")
    both = replace(last, fed_by=(replace(slow, exchange="a"), slow))
    assert chain_verdict(both) is None, "it is not known which of the two it waits for"


MS = ("input_ms", "function_ms", "emit_ms", "blocked_ms")


def test_the_driver_knows_which_run_feeds_which():
    theatre = Theatre(slots=8)
    theatre.stage(1, 2)
    theatre.stage(2, 2)
    outer = [theatre.consumer(index, stage=1) for index in range(2)]
    (later,) = theatre.submitted
    # Two tasks that have a consumer of the one exchange and a producer of the other.
    inner = [
        theatre.consumer(index, stage=2, exchange=OTHER, attempt=70 + index) for index in range(2)
    ]
    _, earlier = theatre.submitted
    for partition in range(2):
        for run, exchange, stage in ((later, EXCHANGE, 2), (earlier, OTHER, 3)):
            attempt = 70 + partition if run is later else None
            task = theatre.producer(run, partition, exchange, attempt, stage)
            theatre.say(task, "REGISTERED", PLACE, run.number, exchange)
            times = dict(zip(MS, (500, 1500, 500, 7500), strict=True))
            theatre.say(task, "PROGRESS", {"rows": 5, "bytes": 5, **times}, run.number, exchange)
    assert (later.fed_by, earlier.feeds) == ([earlier], [later])
    assert (later.feeds, earlier.fed_by) == ([], [])
    for members, run, exchange, times in (
        (inner, earlier, OTHER, (500, 1000, 0, 8500)),
        (outer, later, EXCHANGE, (300, 9700, 0, 0)),
    ):
        for member in members:
            fields = {"rows": 5, "bytes": 5, **dict(zip(MS, times, strict=True))}
            theatre.say(member, "PROGRESS", fields, run.number, exchange)
    theatre.wait(10)
    first, second = (snapshot(run, theatre.now).verdict for run in (earlier, later))
    assert (first.kind, first.exchange) == ("reduce-busy", EXCHANGE.hex())
    assert (second.kind, second.exchange) == ("reduce-busy", "")
    assert first.text == f"exchange {EXCHANGE.hex()[:4]}: {second.text}"
