"""A job from topic to topic, exactly once, whose function fails and whose broker is killed."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from headgate.sink.kafka import KafkaSink
from headgate.source.kafka import KafkaOffsets, KafkaSource
from headgate.stream import stream

ROWS = 6000
SCHEMA = pa.schema([("value", pa.binary()), ("key", pa.string())])


@pytest.mark.timeout(900)
def test_a_job_from_topic_to_topic(broker, tmp_path):
    source, target = broker.create(), broker.create()
    broker.fill(source, 0, ROWS)
    seen, lock, events, half = [0], threading.Lock(), [], threading.Event()

    def work(batch):
        time.sleep(0.02)
        with lock:
            seen[0] += batch.num_rows
            if seen[0] > ROWS // 3 and not events:
                events.append("failed")
                raise RuntimeError("this batch fails once")
            if seen[0] > ROWS // 2:
                half.set()
        return pa.record_batch([batch["value"], pa.repeat("k", batch.num_rows)], schema=SCHEMA)

    topic = KafkaSource(broker.servers, source, until=KafkaOffsets.latest(), batch_rows=20)
    sink = KafkaSink(
        target,
        broker.servers,
        delivery="exactly_once",
        staging=str(tmp_path / "staging"),
        timeout=10,
    )
    job = stream(topic).map(work, schema=SCHEMA).sink(sink)
    options = {"parallelism": 2, "checkpoint": str(tmp_path / "checkpoints"), "interval": "500ms"}
    with job.start(**options) as query:
        # By this thread: the kernel kills the broker with the thread that started it.
        assert half.wait(120)
        broker.kill()
        broker.start()
        query.await_termination()
    assert events == ["failed"]
    found = sorted(int(message.value()) for message in broker.rows(target))
    assert found == list(range(ROWS))
    assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]
