"""The source of Kafka's records with a real broker: transactions, lost records, new partitions, a broker that dies."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions
from tests.soak.kafka.broker import ANSWER

from headgate.errors import SourceError
from headgate.source import read
from headgate.source.kafka import KafkaOffsets, KafkaSource
from headgate.source.testing import SourceTestBase

LATEST = KafkaOffsets.latest()
#: The contract's tests stop after a number of batches, which would depend on what has come so far.
ONE_ROW = {"batch_rows": 1}


def numbers(batches):
    return sorted(int(value) for batch in batches for value in batch["value"].to_pylist())


def read_all(source, **options):
    with read(source, **options) as batches:
        return numbers(batches)


def in_transactions(broker, topic):
    """Write 60 rows in transactions, with others that are aborted, and one that is left open."""
    producer = broker.producer(transactional_id=f"id-{topic}")
    producer.init_transactions(ANSWER)
    for start in range(0, 60, 20):
        producer.begin_transaction()
        broker.fill(topic, start, start + 20, producer=producer)
        producer.commit_transaction(ANSWER)
        producer.begin_transaction()
        broker.fill(topic, 900, 907, producer=producer)
        producer.abort_transaction(ANSWER)
    producer.begin_transaction()
    broker.fill(topic, 950, 953, producer=producer)
    return producer


class TestTransactions(SourceTestBase):
    """Committed rows only; offsets at the end of each partition, and between rows, are of markers."""

    num_splits = 3
    topics = {}  # noqa: RUF012 - by class

    @pytest.fixture(autouse=True)
    def topic_of_the_class(self, broker):
        type(self).broker = broker
        if "topic" not in self.topics:
            self.topics["topic"] = broker.create()
            self.topics["open"] = in_transactions(broker, self.topics["topic"])

    def create_source(self):
        source = KafkaSource(self.broker.servers, self.topics["topic"], until=LATEST, **ONE_ROW)
        return source.with_columns(["value"])

    def expected_records(self):
        return pa.table({"value": pa.array([str(n).encode() for n in range(60)])})


class TestEndless(TestTransactions):
    parallelisms = (1, 2)
    topics = {}  # noqa: RUF012

    def create_source(self):
        source = KafkaSource(self.broker.servers, self.topics["topic"], **ONE_ROW)
        return source.with_columns(["value"])


def test_aborted_rows_are_read_if_the_isolation_says_so(broker):
    topic = broker.create()
    producer = in_transactions(broker, topic)
    loose = {"isolation.level": "read_uncommitted"}
    found = read_all(KafkaSource(broker.servers, topic, until=LATEST, properties=loose))
    assert found == sorted(
        [*range(60), *range(900, 907), *range(900, 907), *range(900, 907), 950, 951, 952]
    )
    producer.abort_transaction(ANSWER)


def test_it_starts_and_stops_at_a_time(broker):
    topic = broker.create()
    broker.fill(topic, 0, 30)
    source = KafkaSource(
        broker.servers,
        topic,
        start=KafkaOffsets.at_time(1_000_010),
        until=KafkaOffsets.at_time(1_000_020),
    )
    assert read_all(source, parallelism=2) == list(range(10, 20))
    late = KafkaSource(broker.servers, topic, start=KafkaOffsets.at_time(2_000_000), until=LATEST)
    assert read_all(late) == []


def test_a_checkpoint_whose_records_were_deleted_is_an_error(broker):
    topic = broker.create(partitions=1)
    broker.fill(topic, 0, 100, partitions=1)
    source = KafkaSource(broker.servers, topic, until=LATEST, batch_rows=10)
    with read(source) as batches:
        next(batches)
        stored = batches.checkpoint()
    gone = broker.admin.delete_records([TopicPartition(topic, 0, 60)])
    for answer in gone.values():
        answer.result(ANSWER)
    with pytest.raises(SourceError, match="no record at the offset to read") as caught:
        read_all(source, checkpoint=stored)
    assert f"{topic}-0" in str(caught.value)
    earliest = read_all(KafkaSource(broker.servers, topic, until=LATEST))
    assert earliest == list(range(60, 100))


def test_partitions_that_are_added_are_found_and_read_from_their_start(broker):
    topic = broker.create(partitions=1)
    broker.fill(topic, 0, 10, partitions=1)
    source = KafkaSource(broker.servers, topic, start=LATEST, discovery_interval=0.2)
    with read(source, parallelism=2) as batches:
        found = []

        def grow():
            answers = broker.admin.create_partitions([NewPartitions(topic, 3)])
            answers[topic].result(ANSWER)
            broker.fill(topic, 10, 40)

        thread = threading.Timer(1.0, grow)
        thread.start()
        try:
            wanted = [n for n in range(10, 40) if n % 3]
            while not set(wanted) <= set(numbers(found)):
                found.append(next(batches))
        finally:
            thread.join()
    seen = numbers(found)
    assert len(seen) == len(set(seen))
    assert all(n >= 10 for n in seen)


def test_offsets_of_a_complete_checkpoint_are_those_of_the_group(broker):
    topic = broker.create()
    broker.fill(topic, 0, 30)
    group = f"group-{topic}"
    source = KafkaSource(broker.servers, topic, group_id=group)
    with read(source) as batches:
        seen = 0
        while seen < 30:
            seen += next(batches).num_rows
        batches.checkpoint()
        broker.fill(topic, 30, 33)
        next(batches)
        places = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, n) for n in range(3)])
        while True:
            (answer,) = broker.admin.list_consumer_group_offsets([places]).values()
            offsets = [one.offset for one in answer.result(ANSWER).topic_partitions]
            if offsets == [10, 10, 10]:
                break
    start = KafkaOffsets.committed()
    again = KafkaSource(broker.servers, topic, group_id=group, start=start, until=LATEST)
    assert read_all(again) == [30, 31, 32]


def test_a_broker_that_is_killed_and_comes_back(broker):
    topic = broker.create()
    broker.fill(topic, 0, 3000)
    source = KafkaSource(broker.servers, topic, batch_rows=100)
    with read(source, parallelism=2) as batches:
        found = [next(batches)]
        stored = batches.checkpoint()
        broker.kill()
        broker.start()
        broker.fill(topic, 3000, 6000)
        after = []
        while sum(batch.num_rows for batch in (*found, *after)) < 6000:
            after.append(next(batches))
    assert numbers([*found, *after]) == list(range(6000))
    with read(source, checkpoint=stored) as batches:
        rest = []
        while sum(batch.num_rows for batch in (*found, *rest)) < 6000:
            rest.append(next(batches))
    assert numbers([*found, *rest]) == list(range(6000))
