"""Jobs with map_async(rate=): a service notes when it is called, through lost workers, restores, values and several jobs."""

import asyncio
import os
import signal
import time
from collections import Counter

import pytest
from tests.kit import stream_jobs
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.waiting import wait_until
from tests.stream.jobs.test_call_jobs import KEYED, counts
from tests.stream.test_call_rates import most_in_any_time

from headgate.errors import StreamError
from headgate.sink import FunctionSink
from headgate.stream import Retry
from headgate.stream.job import rates
from headgate.stream.job.tokens import RateLimits

ROWS = 1500


class Service:
    """Notes the row and the time of each call in a file, by a clock that is the same in all processes."""

    def __init__(self, folder):
        self.file = folder / "ledger"

    async def __call__(self, row):
        with self.file.open("a") as file:
            file.write(f"{row['id']} {time.monotonic()}\n")
        await asyncio.sleep(0.001)
        return row

    def calls(self):
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        # The last line may be under way.
        return [
            (int(row), float(at)) for row, at in (line.split() for line in lines if " " in line)
        ]

    def rows(self):
        return Counter(row for row, _ in self.calls())

    def check(self, rate, times=None):
        """Check that no time had more calls than the rate and bursts allow: twice, since a slow machine may hold calls up."""
        times = [at for _, at in self.calls()] if times is None else times
        assert most_in_any_time(times, rate) <= 2 * RateLimits(rate, rate).burst + 1


def figures(query, name="calls"):
    return query.status.metrics.get(name, {})


def number_waiting(query):
    return sum(figures(query).get("calls_waiting", {"values": {}})["values"].values())


@pytest.mark.parametrize("workers", [0, 2])
def test_all_tasks_together_keep_the_rate(tmp_path, workers):
    service = Service(tmp_path)
    rows = stream_jobs.numbers(ROWS).rebalance()
    called = rows.map_async(
        service, schema=KEYED, rate="800/s", ordered=False, in_flight=50, name="calls"
    )
    with counts(tmp_path, called).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.2, parallelism=4, workers=workers
    ) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    assert service.rows() == dict.fromkeys(range(ROWS), 1)
    service.check(800)
    metrics = figures(query)
    assert metrics["call_rate"]["values"] == dict.fromkeys("0123", 800)
    assert metrics["call_wait_seconds"]["count"] > 0


def test_a_killed_worker_and_a_rescale_make_no_burst(tmp_path):
    service = Service(tmp_path)
    called = (
        stream_jobs.numbers(ROWS, rate=500)
        .rebalance()
        .map_async(service, schema=KEYED, rate="600/s", ordered=False, in_flight=50, name="calls")
    )
    with counts(tmp_path, called).start(
        checkpoint=str(tmp_path / "checkpoints"),
        interval=0.1,
        parallelism=2,
        workers=2,
        alignment="unaligned",
        restart_delay=0.01,
    ) as query:
        wait_until(lambda: len(service.calls()) > 300)
        wait_for_a_checkpoint(query)
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
        wait_until(lambda: query.status.restarts == 1)
        wait_until(lambda: len(service.calls()) > 600)
        query.rescale(3)
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), ROWS)
    assert service.rows().keys() == {*range(ROWS)}
    service.check(600)


def test_a_job_that_goes_on_deals_no_token_twice(tmp_path):
    """An hour has one token: the first driver deals it, and those after it deal none."""
    service = Service(tmp_path)

    def start(parallelism):
        rows = stream_jobs.numbers(100).rebalance()
        called = rows.map_async(service, schema=KEYED, rate="1/h", in_flight=5, name="calls")
        return counts(tmp_path, called).start(
            checkpoint=str(tmp_path / "checkpoints"),
            interval=0.1,
            parallelism=parallelism,
            alignment="unaligned",
        )

    for parallelism in (2, 1, 3):
        with start(parallelism) as query:
            wait_until(lambda: len(service.calls()) == 1)
            wait_until(lambda: number_waiting(query) >= 5)
            wait_for_a_checkpoint(query)
            query.cancel()
    assert len(service.calls()) == 1


@pytest.mark.parametrize("memo", [None, "id"])
def test_each_value_of_a_column_has_the_rate(tmp_path, memo):
    service = Service(tmp_path)
    called = (
        stream_jobs.numbers(240)
        .rebalance()
        .map_async(
            service,
            schema=KEYED,
            rate="40/s",
            rate_by="key",
            ordered=False,
            in_flight=20,
            memo=memo,
            name="calls",
        )
    )
    with counts(tmp_path, called).start(
        checkpoint=str(tmp_path / "checkpoints"), interval=0.2, parallelism=2
    ) as query:
        assert query.await_termination(60)
    stream_jobs.check_counts(stream_jobs.rows_of(tmp_path / "out"), 240)
    assert service.rows() == dict.fromkeys(range(240), 1)
    times = {}
    for row, at in service.calls():
        times.setdefault(row % stream_jobs.KEYS, []).append(at)
    for of_key in times.values():
        service.check(40, of_key)


def test_jobs_share_a_rate_by_its_name(tmp_path):
    service, queries = Service(tmp_path), []
    for _ in range(2):
        called = stream_jobs.numbers(400).map_async(
            service, schema=KEYED, rate="500/s", rate_name="both", ordered=False, name="calls"
        )
        queries.append(called.sink(FunctionSink([].append)).start(parallelism=2))
    other = stream_jobs.numbers(1).map_async(service, schema=KEYED, rate="400/s", rate_name="both")
    with pytest.raises(StreamError, match="two rates are named 'both'") as error:
        other.sink(FunctionSink(print)).start()
    assert "500/s" in str(error.value)
    for query in queries:
        assert query.await_termination(60)
    assert service.rows() == dict.fromkeys(range(400), 2)
    service.check(500)
    assert rates._NAMED == {}
    # The name is free again.
    with other.sink(FunctionSink(print)).start() as query:
        assert query.await_termination(60)


class Busy:
    """A service that refuses calls while it is busy; for threads."""

    def __init__(self):
        self.is_busy = True

    async def __call__(self, row):
        if self.is_busy:
            raise Retry("429", after=0.05)
        return row


def test_answers_of_429_lower_the_rate_of_all_tasks():
    service, results = Busy(), []
    called = (
        stream_jobs.numbers(200)
        .rebalance()
        .map_async(
            service, schema=KEYED, rate="300/s", rate_min="100/s", retries=10**6, name="calls"
        )
    )
    with called.sink(FunctionSink(results.append)).start(parallelism=2) as query:

        def lowest():
            values = figures(query).get("call_rate", {"values": {}})["values"].values()
            return max(values, default=300)

        wait_until(lambda: lowest() < 200)
        assert lowest() >= 100
        service.is_busy = False
        assert query.await_termination(60)
        assert figures(query)["calls_slowed"]["value"] > 0
    assert sorted(at for batch in results for at in batch["id"].to_pylist()) == list(range(200))
