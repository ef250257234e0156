"""Flink's metrics: docs/metrics.md lists exactly those that stats() has."""

import asyncio
import re
from pathlib import Path

from plane import Task, open_gates, wait_until

import headgate as hg

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "metrics.md"
#: Lists of nodes, by the node that has them.
NESTED = {"gates": "channels", "partitions": "subpartitions"}
#: Keys of nodes that are no metrics.
WORDS = {"id", "name", *NESTED.values()}


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


def test_the_page_and_the_snapshot_have_the_same_names(environment):
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


def test_metrics_without_values_are_zero(environment):
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


def test_an_async_reader_is_idle_while_it_waits(environment):
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
