"""The sink of Kafka with librdkafka's mock broker: rows as records, at least once; what cannot be a record.

The mock broker has no transactions: exactly once is tested with a real one, in tests/soak/kafka.
"""

import pickle
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.kit import stream_sinks
from tests.kit.mock_kafka import Broker

from headgate.errors import OptionError, SchemaMismatchError, SinkError
from headgate.sink import CommitterContext, WriterContext, write
from headgate.sink.kafka import KafkaSink
from headgate.sink.kafka import committer as committers
from headgate.sink.kafka.producing import records_of
from headgate.sink.staged_rows import staged_rows
from headgate.sink.staging import Committable
from headgate.source import read
from headgate.source.kafka import KafkaOffsets, KafkaSource

CONTEXT = WriterContext("job", 0, 1, "a")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker():
    return Broker()


def rows_of(broker, topic, columns=("value",)):
    source = KafkaSource(broker.servers, topic, until=KafkaOffsets.latest(), headers=True)
    with read(source.with_columns(columns)) as batches:
        return [row for batch in batches for row in batch.to_pylist()]


class Numbered(KafkaSink):
    """Takes the column n of the kit as values."""

    def create_writer(self, context, schema=None):
        writer = super().create_writer(context, schema)
        write = writer.write
        writer.write = lambda batch: write(
            pa.record_batch([batch["n"].cast(pa.string())], names=["value"])
        )
        return writer


def test_what_is_written_is_what_the_source_reads(broker):
    topic = broker.fill(4)
    batch = pa.record_batch(
        {
            "value": pa.array([b"x", None, b"z"]),
            "key": pa.array(["k", None, "l"]),
            "partition": pa.array([1, 1, 1], pa.int16()),
            "timestamp": pa.array([1_000, 2_000_999, 3_000], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "a", "value": b"1"}], None, []], HEADERS),
        }
    )
    with KafkaSink(topic, broker.servers).create_writer(CONTEXT) as writer:
        writer.write(batch)
        writer.flush(end_of_input=True)
        assert writer.prepare_commit(1) is None
    found = rows_of(broker, topic, ["offset", "key", "value", "partition", "timestamp", "headers"])
    written = [row for row in found if row["partition"] == 1 and row["offset"] > 0]
    assert [row["value"] for row in written] == [b"x", None, b"z"]
    assert [row["key"] for row in written] == [b"k", None, b"l"]
    milliseconds = [round(row["timestamp"].timestamp() * 1000) for row in written]
    assert milliseconds == [1, 2000, 3]
    assert [row["headers"] for row in written] == [[{"key": "a", "value": b"1"}], None, None]


def test_a_row_may_name_its_topic(broker):
    topics = [broker.fill(1), broker.fill(1)]
    with KafkaSink(topics[0], broker.servers).create_writer(CONTEXT) as writer:
        writer.write(pa.record_batch({"value": ["here", "there"], "topic": [None, topics[1]]}))
        writer.prepare_commit(1)
    assert {"value": b"here"} in rows_of(broker, topics[0])
    assert {"value": b"there"} in rows_of(broker, topics[1])


def test_a_batch_is_sent(broker):
    topic = broker.fill(1)
    assert write(pa.table({"value": ["x", "y"]}), KafkaSink(topic, broker.servers)).rows == 2
    assert {"value": b"y"} in rows_of(broker, topic)


@pytest.mark.soak
def test_rows_of_complete_checkpoints_are_there_at_least_once(broker):
    from tests.kit import sinks

    for number in (12, 26, 41):
        topic = broker.fill(1)
        # The row that made the topic is not a number.
        job = stream_sinks.StreamJob(
            lambda faults, topic=topic: Numbered(topic, broker.servers),
            lambda topic=topic: [
                int(row["value"]) for row in rows_of(broker, topic) if row["value"].isdigit()
            ],
            sinks.Faults(number),
        )
        stream_sinks.play(job, stream_sinks.SCRIPT)
        assert job.crashes


def test_a_checkpoint_fails_if_a_row_is_not_delivered():
    broker = Broker()
    topic = broker.fill(1)
    with KafkaSink(topic, broker.servers).create_writer(CONTEXT) as writer:
        writer.write(pa.record_batch({"value": ["a"]}))
        writer.prepare_commit(1)
    hasty = {"delivery.timeout.ms": 1000, "linger.ms": 0}
    writer = KafkaSink(topic, broker.servers, properties=hasty).create_writer(CONTEXT)
    del broker
    writer.write(pa.record_batch({"value": ["b"]}))
    with pytest.raises(SinkError, match="was not delivered"):
        writer.prepare_commit(1)
    writer.close()
    writer.close()


def test_a_time_in_milliseconds_or_any_unit():
    time = datetime(2026, 1, 2, tzinfo=UTC)
    for values in (
        pa.array([1_767_312_000_000]),
        pa.array([time], pa.timestamp("s", "UTC")),
        pa.array([time.replace(tzinfo=None)], pa.timestamp("ns")),
    ):
        (record,) = records_of(pa.record_batch({"value": ["a"], "timestamp": values}), "t")
        assert record == {"value": "a", "timestamp": 1_767_312_000_000, "topic": "t"}


@pytest.mark.parametrize(
    "columns",
    [
        {"text": pa.array(["a"])},
        {"value": pa.array([1])},
        {"value": pa.array(["a"]), "more": pa.array([1])},
        {"value": pa.array(["a"]), "timestamp": pa.array(["noon"])},
        {"value": pa.array(["a"]), "headers": pa.array([["a"]])},
        {"value": pa.array(["a"]), "partition": pa.array([1.5])},
    ],
)
def test_what_cannot_be_a_record_is_refused_before_it_is_written(columns, tmp_path):
    batch = pa.record_batch(columns)
    for options in ({}, {"delivery": "exactly_once", "staging": str(tmp_path)}):
        sink = KafkaSink("topic", "127.0.0.1:1", **options)
        with (
            sink.create_writer(CONTEXT) as writer,
            pytest.raises(SchemaMismatchError, match="cannot write these columns"),
        ):
            writer.write(batch)
        with pytest.raises(SchemaMismatchError, match="cannot write these columns"):
            sink.create_writer(CONTEXT, batch.schema)


def test_a_committer_without_a_broker_says_so(tmp_path):
    options = {"delivery": "exactly_once", "staging": str(tmp_path), "timeout": 0.2}
    committer = KafkaSink("t", "127.0.0.1:1", **options).create_committer(CommitterContext("job"))
    with pytest.raises(SinkError, match="cannot start"):
        committer.start(None)
    committer.close()


def test_the_sink_travels_without_a_connection(tmp_path):
    sink = KafkaSink("t", "b", delivery="exactly_once", staging=str(tmp_path))
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert sink.delivery == "exactly_once"
    assert "secret" not in repr(KafkaSink("t", "b", properties={"sasl.password": "secret"}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ""}, "is no name"),
        ({"bootstrap_servers": ""}, "names no broker"),
        ({"delivery": "sometimes"}, "is none of"),
        ({"delivery": "exactly_once"}, "does not go with"),
        ({"staging": "/tmp"}, "does not go with"),
        ({"properties": {"transactional.id": "mine"}}, "cannot be chosen"),
        ({"timeout": "soon"}, "timeout='soon'"),
    ],
)
def test_mistakes_are_named(options, said):
    with pytest.raises(OptionError, match=said):
        KafkaSink(**{"topic": "t", "bootstrap_servers": "b", **options})


def test_a_call_that_hangs_is_left_behind():
    gate, done = threading.Event(), []
    with pytest.raises(TimeoutError, match="did not return"):
        committers._in_time(lambda: done.append(gate.wait()), 0.01)
    (thread,) = (t for t in threading.enumerate() if t.name == "headgate-kafka-offsets")
    gate.set()
    thread.join()
    assert done == [True]
    with pytest.raises(ZeroDivisionError):
        committers._in_time(lambda: 1 / 0, 10)


def test_a_changed_byte_of_staged_rows_is_an_error(tmp_path):
    sink = KafkaSink("t", "b", delivery="exactly_once", staging=str(tmp_path))
    batch = pa.record_batch({"value": [f"row {n} of many" for n in range(50)], "key": ["k"] * 50})
    with sink.create_writer(CONTEXT) as writer:
        writer.write(batch)
        found = Committable.from_bytes(writer.prepare_commit(1))
    committer = sink.create_committer(CommitterContext("job"))
    (file,) = tmp_path.rglob("part-*")
    whole = file.read_bytes()
    assert list(staged_rows(committer._storage, found)) == [batch]
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        with pytest.raises(SinkError, match="missing or have changed"):
            list(staged_rows(committer._storage, found))
    file.unlink()
    with pytest.raises(SinkError, match="missing or have changed"):
        list(staged_rows(committer._storage, found))
