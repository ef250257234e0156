"""The source of Kafka's records, with librdkafka's mock broker; tests/soak/kafka has a real one."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kit.contexts import Collected, FakeEnumeratorContext, is_end, polled
from tests.kit.mock_kafka import PARTITIONS, Broker, expected
from tests.kit.waiting import wait_until

from headgate.errors import OptionError, SourceError, UnknownColumnError
from headgate.source import Boundedness, WatermarkStrategy, read
from headgate.source.kafka import KafkaCheckpoint, KafkaOffsets, KafkaSource, KafkaSplit
from headgate.source.kafka.enumerator import KafkaEnumerator
from headgate.source.registry import source_from_options
from headgate.source.testing import SourceTestBase

LATEST = KafkaOffsets.latest()
#: The contract's tests stop after a number of batches, which would depend on what has come so far.
ONE_ROW = {"batch_rows": 1}


@pytest.fixture(scope="module")
def broker():
    return Broker()


class FakeReader:
    index_of_subtask = 0

    def send_split_request(self):
        raise AssertionError("a reader gets its splits without a request")


class OfBroker(SourceTestBase):
    num_splits = PARTITIONS
    rows = 40

    @classmethod
    def setup_class(cls):
        cls.broker = Broker()
        cls.topic = cls.broker.fill(cls.rows)

    @classmethod
    def teardown_class(cls):
        del cls.broker

    def expected_records(self):
        return expected(self.topic, self.rows, self.create_source().schema)


class TestBounded(OfBroker):
    def create_source(self):
        options = {"until": LATEST, "headers": True, **ONE_ROW}
        return KafkaSource(self.broker.servers, self.topic, **options)


class TestUnbounded(OfBroker):
    parallelisms = (1, 3)

    def create_source(self):
        pattern = re.compile("topic-.*")
        return KafkaSource(self.broker.servers, pattern, discovery_interval=0.1, **ONE_ROW)


def values(batches):
    return sorted(int(v[4:]) for batch in batches for v in batch["value"].to_pylist())


def read_all(source, **options):
    with read(source, **options) as batches:
        return values(batches)


def test_it_starts_and_stops_at_given_offsets(broker):
    topic = broker.fill(40)
    start = KafkaOffsets.given({(topic, n): 2 for n in range(3)}, otherwise="latest")
    until = KafkaOffsets.given({(topic, n): 5 for n in range(3)}, otherwise="latest")
    source = KafkaSource(broker.servers, topic, start=start, until=until)
    assert read_all(source, parallelism=2) == [n for n in range(8, 20) if n % 4 < 3]
    missing = KafkaSource(broker.servers, topic, start=KafkaOffsets.given({}), until=LATEST)
    with pytest.raises(SourceError, match=r"no offset of partition .* was given"):
        read_all(missing)


def test_offsets_of_complete_checkpoints_are_committed_to_the_group(broker):
    topic = broker.fill(40)
    committed = KafkaOffsets.committed()
    source = KafkaSource(broker.servers, topic, group_id=f"g-{topic}", batch_rows=5)
    with read(source) as batches:
        first = [next(batches) for _ in range(3)]
        batches.checkpoint()
        first.append(next(batches))
        consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": f"g-{topic}"})
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]

        def is_committed():
            if len(first) < 8:  # as many batches as there are
                first.append(next(batches))
            return sum(max(0, one.offset) for one in consumer.committed(places, 10)) >= 1

        wait_until(is_committed, "the offsets are committed", 60)
        consumer.close()
    again = KafkaSource(broker.servers, topic, group_id=f"g-{topic}", start=committed, until=LATEST)
    rest = read_all(again)
    covered = sum(batch.num_rows for batch in first[:3])
    assert len(rest) == 40 - covered
    assert sorted(rest + values(first[:3])) == list(range(40))
    nothing = KafkaSource(broker.servers, topic, group_id="new", start=committed, until=LATEST)
    with pytest.raises(SourceError, match="is committed by group 'new'"):
        read_all(nothing)


def test_what_is_committed_is_where_the_checkpoint_was_and_not_what_came_since(broker):
    topic = broker.fill(40)
    source = KafkaSource(broker.servers, topic, group_id=f"g-{topic}", batch_rows=1)
    reader, output = source.create_reader(FakeReader()), Collected()

    def read_rows(count):
        polled(reader, output, lambda _: len(output.records) >= count)

    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": f"g-{topic}"})
    try:
        reader.start()
        reader.add_splits([KafkaSplit(topic, 0, 2)])
        read_rows(3)
        reader.snapshot_state(1)
        reader.snapshot_state(2)
        read_rows(6)
        reader.snapshot_state(3)
        reader.notify_checkpoint_complete(2)
        place = [TopicPartition(topic, 0)]
        while (offset := consumer.committed(place, 10)[0].offset) < 0:
            pass
        assert offset == 5
        assert list(reader._positions) == [3]
        reader.notify_checkpoint_aborted(3)
        assert reader._positions == {}
    finally:
        reader.close()
        consumer.close()


def test_the_last_checkpoint_of_a_source_that_has_ended_is_committed_when_it_closes(broker):
    topic = broker.fill(40)
    group = f"g-{topic}"
    source = KafkaSource(broker.servers, topic, group_id=group, until=LATEST)
    reader, output = source.create_reader(FakeReader()), Collected()
    try:
        reader.start()
        reader.add_splits([KafkaSplit(topic, n, 0, 10) for n in range(PARTITIONS)])
        reader.notify_no_more_splits()
        polled(reader, output, is_end)
        assert reader.snapshot_state(1) == []
        reader.notify_checkpoint_complete(1)
    finally:
        reader.close()
    start = KafkaOffsets.committed()
    again = KafkaSource(broker.servers, topic, group_id=group, start=start, until=LATEST)
    assert read_all(again) == []


def test_without_a_group_nothing_is_committed(broker):
    topic = broker.fill(4)
    source = KafkaSource(broker.servers, topic, until=LATEST)
    reader = source.create_reader(FakeReader())
    try:
        reader.add_splits([KafkaSplit(topic, 0, 0, 1)])
        reader.snapshot_state(1)
        assert reader._positions == {}
        reader.notify_checkpoint_complete(1)
    finally:
        reader.close()


@pytest.mark.parametrize(
    "until",
    [None, LATEST, KafkaOffsets.given({}, otherwise="latest")],
    ids=["endless", "latest", "given"],
)
@pytest.mark.parametrize("is_until_now", [False, True])
def test_a_lost_offset_is_an_error_and_never_skipped(broker, until, is_until_now):
    topic = broker.fill(8)
    start = KafkaOffsets.given({(topic, 0): 1000}, otherwise="latest")
    source = KafkaSource(broker.servers, topic, start=start, until=until)
    with pytest.raises(SourceError, match="no record at the offset to read") as caught:
        read_all(source.until_now() if is_until_now else source)
    assert caught.value.code == "HG-6003"
    assert f"{topic}-0" in str(caught.value)
    assert "1000" in str(caught.value)


def test_a_missing_topic_or_broker_is_named(broker):
    with pytest.raises(SourceError, match="there is no topic 'nowhere'"):
        read_all(KafkaSource(broker.servers, ["nowhere"], until=LATEST))
    source = KafkaSource("127.0.0.1:1", "orders", until=LATEST, timeout=0.2)
    with pytest.raises(SourceError, match="cannot be listed"):
        read_all(source)
    assert "nowhere" not in broker.producer.list_topics(timeout=10).topics


def test_the_times_of_records_make_watermarks(broker):
    topic = broker.fill(40)
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    with read(KafkaSource(broker.servers, topic), watermarks=watermarks) as batches:
        seen = 0
        while seen < 40:
            seen += next(batches).num_rows
        assert batches.current_watermark <= 1_000_000 + 36


def test_fewer_columns_are_read_in_any_order(broker):
    source = KafkaSource(broker.servers, broker.fill(4), until=LATEST)
    some = source.with_columns(["offset", "value"])
    with read(some) as batches:
        assert {tuple(batch.schema.names) for batch in batches} == {("offset", "value")}
    assert source.with_columns([]) is None
    with pytest.raises(UnknownColumnError, match="headers"):
        source.with_columns(["headers"])


def found(*partitions):
    return [KafkaSplit("t", number, 0) for number in partitions]


def test_partitions_that_are_found_later_are_given_out():
    answers, asked = [found(0, 1), found(2)], []

    def discover(known, is_first):
        asked.append((sorted(known), is_first))
        return answers.pop(0) if answers else []

    context = FakeEnumeratorContext(2)
    enumerator = KafkaEnumerator(context, KafkaCheckpoint(), discover, 5.0, is_bounded=False)
    enumerator.start()
    for _ in range(3):
        context.tick()
    assert sorted(split.partition for split in context.all) == [0, 1, 2]
    assert asked[:2] == [([], True), ([("t", 0), ("t", 1)], False)]
    assert context.told_no_more == []
    assert enumerator.total_splits is None


def test_a_listing_that_fails_later_is_tried_again():
    answers = [found(0), OSError("away"), found(1)]

    def discover(known, is_first):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    context = FakeEnumeratorContext(1)
    enumerator = KafkaEnumerator(context, KafkaCheckpoint(), discover, 5.0, is_bounded=False)
    enumerator.start()
    for _ in range(3):
        context.tick()
    assert sorted(split.partition for split in context.all) == [0, 1]
    answers.insert(0, OSError("away"))
    first = KafkaEnumerator(context, KafkaCheckpoint(), discover, 5.0, is_bounded=False)
    context.periodic.clear()
    first.start()
    with pytest.raises(OSError, match="away"):
        context.tick()


def test_a_restored_job_reads_partitions_that_are_new_but_not_if_it_is_bounded():
    for is_bounded, wanted in ((False, [3]), (True, [])):
        context = FakeEnumeratorContext(1)
        checkpoint = KafkaCheckpoint(known=(("t", 0),), is_listed=True)
        enumerator = KafkaEnumerator(
            context, checkpoint, lambda known, is_first: found(0, 3), None, is_bounded=is_bounded
        )
        enumerator.start()
        enumerator.add_reader(0)
        context.run()
        assert [split.partition for split in context.all] == wanted
        assert context.told_no_more == [0]


def test_options_are_the_arguments(broker):
    topic = broker.fill(12)
    source = source_from_options(
        {
            "source": "kafka",
            "bootstrapservers": broker.servers,
            "topics": topic,
            "startingOffsets": f'{{"{topic}": {{"0": 1, "1": 1, "2": 1, "3": 1}}}}',
            "stoppingOffsets": "latest",
            "kafka.client.id": "me",
            "includeHeaders": "true",
        }
    )
    assert source.boundedness is Boundedness.BOUNDED
    assert source._properties == {"client.id": "me"}
    assert source.schema.names[-1] == "headers"
    assert read_all(source) == list(range(4, 12))
    pattern = source_from_options(
        {"source": "kafka", "bootstrapServers": "b", "topicPattern": "orders-.*"}
    )
    assert pattern.name == "KafkaSource(orders-.*)"
    assert pattern.has_endless_splits


def test_offsets_as_texts():
    time = datetime(2026, 1, 2, tzinfo=UTC)
    texts = {
        "earliest": KafkaOffsets.earliest(),
        "latest": LATEST,
        "committed": KafkaOffsets.committed(),
        "committed:latest": KafkaOffsets.committed("latest"),
        "time:2026-01-02": KafkaOffsets.at_time(time),
        "time:1767312000000": KafkaOffsets.at_time(time),
        '{"a": {"0": 3}}': KafkaOffsets.given({("a", 0): 3}),
    }
    for text, offsets in texts.items():
        assert KafkaOffsets.from_text(text) == offsets
    for wrong in ("newest", "time:", "earliest:1", "time:noon"):
        with pytest.raises(ValueError, match=r".+"):
            KafkaOffsets.from_text(wrong)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("", "t"), {}, "names no broker"),
        (("b", ""), {}, "name that is no text"),
        (("b", []), {}, "names no topic"),
        (("b", "t"), {"start": "earliest"}, "are no offsets"),
        (("b", "t"), {"start": KafkaOffsets.committed()}, "group_id=None is needed"),
        (("b", "t"), {"until": LATEST, "discovery_interval": 5}, "contradicts until="),
        (("b", "t"), {"properties": {"auto.offset.reset": "latest"}}, "cannot be chosen"),
        (("b", "t"), {"properties": 3}, "not librdkafka's properties"),
        (("b", "t"), {"batch_rows": 0}, "batch_rows=0"),
    ],
)
def test_mistakes_are_named(arguments, options, said):
    with pytest.raises(OptionError, match=said):
        KafkaSource(*arguments, **options)
    with pytest.raises(OptionError, match="otherwise"):
        KafkaOffsets.committed("any")


def test_without_the_client_the_error_says_what_to_install():
    program = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'confluent_kafka' else real(name, *a)\n"
        "import headgate.source\n"
        "try: import headgate.source.kafka\n"
        "except ImportError as error: print(error.code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert "HG-1103" in done.stdout
    assert "headgate[kafka]" in done.stdout
