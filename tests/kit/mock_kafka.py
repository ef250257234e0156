"""A mock broker inside this process, which librdkafka brings, for tests of the source without a real one.

It has no transactions, no deletion of records and no times; tests/soak/kafka has a real broker.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
from confluent_kafka import Producer

#: Partitions of each topic of the mock broker.
PARTITIONS = 4
_names = itertools.count()


class Broker:
    """A mock broker; the client that started it keeps it alive."""

    def __init__(self):
        self.producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def fill(self, rows, topic=None):
        """Write rows into a topic, in turn into its partitions; return its name."""
        topic = topic or f"topic-{next(_names)}"
        for n in range(rows):
            place = {"partition": n % PARTITIONS, "timestamp": 1_000_000 + n}
            headers = [("n", str(n).encode()), ("none", None)] if n % 2 else None
            key = None if n % 3 == 0 else f"key {n}".encode()
            self.producer.produce(
                topic, value=f"row {n}".encode(), key=key, headers=headers, **place
            )
        assert self.producer.flush(10) == 0
        return topic


def expected(topic, rows, schema):
    """Return what the source reads from a topic that fill() has made."""
    found = [
        {
            "key": None if n % 3 == 0 else f"key {n}".encode(),
            "value": f"row {n}".encode(),
            "topic": topic,
            "partition": n % PARTITIONS,
            "offset": n // PARTITIONS,
            "timestamp": 1_000_000 + n,
            "timestamp_type": 0,
            "headers": [{"key": "n", "value": str(n).encode()}, {"key": "none", "value": None}]
            if n % 2
            else None,
        }
        for n in range(rows)
    ]
    return pa.Table.from_pylist(found, schema)
