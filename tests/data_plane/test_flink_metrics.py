"""Flink's metrics: docs/metrics.md lists exactly those that stats() has."""

import asyncio
import re
import threading
from pathlib import Path

import pytest
from plane import NUMBERS, Task, drain, exchange, numbers, open_gates, wait_until

import headgate as hg

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "metrics.md"
#: Lists of nodes, by the node that has them.
NESTED = {"gates": "channels", "partitions": "subpartitions"}
#: Keys of nodes that are no metrics.
WORDS = {"id", "name", *NESTED.values()}
PARTS = ("busy", "idle", "backPressured")


def on_the_page():
    """Return the names that docs/metrics.md lists under "The metrics", by node."""
    names = {}
    page = PAGE.read_text(encoding="utf-8")
    page = page.partition("\n## The metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", page, re.MULTILINE)
    for name, of in rows:
        for node in of.split(", "):
            names.setdefault(node, []).append(name)
    return names


def in_stats(metrics):
    """Return the names of the metrics of each node, from stats with one node of each sort."""
    nodes = {"shuffle": metrics["shuffle"], "task": metrics["task"]}
    for outer, inner in NESTED.items():
        nodes[outer] = metrics[outer][0]
        nodes[inner] = metrics[outer][0][inner][0]
    return {
        node: {name: value for name, value in metrics.items() if name not in WORDS}
        for node, metrics in nodes.items()
    }


def values(metrics):
    """Return all numbers of a node and of its nested nodes."""
    if isinstance(metrics, (int, float)):
        return [metrics]
    if isinstance(metrics, str):
        return []
    inner = metrics.values() if isinstance(metrics, dict) else metrics
    return [value for one in inner for value in values(one)]


def test_spec_section_12_2_the_page_and_the_snapshot_have_the_same_names(environment):
    env = environment()
    partition = env.create_result_partition(1)
    gate = env.create_input_gate([partition.address(0)])
    metrics = env.stats()["metrics"]
    assert metrics["partitions"][0]["id"] == partition.id.hex()
    assert partition.id.hex() in metrics["gates"][0]["channels"][0]["name"]
    nodes = in_stats(metrics)
    page = on_the_page()
    assert sum(map(len, page.values())) > 60
    assert {node: sorted(names) for node, names in page.items()} == {
        node: sorted(metrics) for node, metrics in nodes.items()
    }
    gate.close()


def test_spec_section_12_2_metrics_without_values_are_zero(environment):
    env = environment()
    metrics = env.stats()["metrics"]
    assert metrics["gates"] == metrics["partitions"] == []
    assert set(values(metrics["task"])) == {0}
    partition = env.create_result_partition(1)
    gate = env.create_input_gate(unknown=1)
    nodes = in_stats(env.stats()["metrics"])
    for node in ("gates", "channels", "partitions", "subpartitions"):
        assert set(values(nodes[node])) == {0}, node
    partition.close()
    gate.close()
    env.close()
    metrics = env.stats()["metrics"]
    assert metrics["shuffle"]["UsedMemory"] == 0
    assert values(metrics["gates"]).count(0) == len(values(metrics["gates"]))
    accumulated = metrics["task"]["accumulateBusyTimeMs"]
    assert env.stats()["metrics"]["task"]["accumulateBusyTimeMs"] == accumulated, "it has ended"


def test_both_ends_count_the_same_bytes_and_buffers(link):
    producer, consumer = link()
    [table] = exchange(
        producer, consumer, lambda writer: writer.emit(numbers(50_000)), schema=NUMBERS
    )
    assert table.num_rows == 50_000
    sent, received = (env.stats()["metrics"]["task"] for env in (producer, consumer))
    here = "Local" if link.kind in {"local", "kept"} else "Remote"
    assert sent["numBytesOut"] == received[f"numBytesIn{here}"] > 8 * 50_000
    assert sent["numBuffersOut"] == received[f"numBuffersIn{here}"] > 1
    assert received["inputQueueLength"] == sent["outputQueueLength"] == 0


def test_spec_section_12_2_the_parts_of_a_second_make_a_second(environment):
    env = environment(max_overdraft_buffers=0)
    partition = env.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    writing = Task(lambda: ([writer.emit(numbers(100_000)) for _ in range(10)], writer.finish()))

    def task():
        return env.stats()["metrics"]["task"]

    wait_until(lambda: task()["accumulateBackPressuredTimeMs"] >= 50)
    for _ in range(50):
        metrics = task()
        assert sum(metrics[f"{part}TimeMsPerSecond"] for part in PARTS) == 1000
        soft, hard = (metrics[f"{how}BackPressuredTimeMsPerSecond"] for how in ("soft", "hard"))
        assert metrics["backPressuredTimeMsPerSecond"] == soft + hard
    [gate] = open_gates(partition, env)
    assert Task(drain, gate).result().num_rows == 1_000_000
    writing.result()
    assert writer.back_pressured_ns() >= 50_000_000


def test_spec_section_12_2_an_async_reader_is_idle_while_it_waits(environment):
    env = environment()
    partition = env.create_result_partition(1)
    [gate] = open_gates(partition, env)

    def idle():
        metrics = env.stats()["metrics"]
        return [one["accumulateIdleTimeMs"] for one in (metrics["task"], *metrics["gates"])]

    async def read():
        return [record async for record in hg.RecordReader(gate, serializer="bytes")]

    reading = Task(asyncio.run, read())
    wait_until(lambda: min(idle()) >= 50)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"at last")
    assert reading.result() == [b"at last"]
    before = idle()
    busy = env.stats()["metrics"]["task"]["accumulateBusyTimeMs"]
    wait_until(lambda: env.stats()["metrics"]["task"]["accumulateBusyTimeMs"] > busy + 10)
    assert idle() == before
    gate.close()


def test_gauges_are_read_while_everything_comes_and_goes(link):
    producer, consumer = link()
    seen = []

    def watch():
        while not done.is_set():
            for env in (producer, consumer):
                metrics = env.stats()["metrics"]
                assert all(value >= 0 for value in values(metrics))
                seen.append(metrics["task"]["numBytesOut"])

    def write(writer):
        writer.emit(numbers(20_000))

    done = threading.Event()
    watching = Task(watch)
    for turn in range(20):
        exchange(producer, consumer, write, n=1 + turn % 3, schema=NUMBERS)
    done.set()
    watching.result()
    assert len(set(seen)) > 1


@pytest.mark.parametrize("flush", [True, False])
def test_spec_12_08_a_broadcast_buffer_counts_for_each_consumer(environment, flush):
    env = environment()
    partition = env.create_result_partition(4)
    writer = hg.RecordWriter(partition, serializer="bytes")
    writer.broadcast_emit(b"to all")
    if flush:
        writer.flush()
    writer.finish()
    metrics = env.stats()["metrics"]
    assert metrics["task"]["numBuffersOut"] == 4
    assert [one["numBuffersOut"] for one in metrics["partitions"][0]["subpartitions"]] == [1] * 4
