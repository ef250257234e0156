"""The sink of Kafka, exactly once: a crash at any step of a transaction, with a real broker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from tests.kit import sinks, stream_sinks
from tests.soak.kafka.broker import ANSWER

from headgate.errors import SinkError
from headgate.sink import CommitterContext, WriterContext
from headgate.sink.kafka import KafkaSink
from headgate.sink.kafka import committer as committers

#: The calls of a producer that change something at the broker.
CALLS = (
    *("init_transactions", "begin_transaction", "produce", "flush"),
    *("send_offsets_to_transaction", "commit_transaction", "abort_transaction"),
)


class Steps:
    """Passes calls on to a producer; ``step`` is called before and after each of :data:`CALLS`."""

    def __init__(self, producer, step):
        self._producer, self._step = producer, step

    def __getattr__(self, name):
        call = getattr(self._producer, name)
        if name not in CALLS:
            return call

        def counted(*args, **options):
            self._step(f"before {name}")
            result = call(*args, **options)
            self._step(f"after {name}")
            return result

        return counted


def crashing(committer, step):
    """Have a committer call ``step`` around the calls of its producers."""
    assert isinstance(committer, committers.KafkaCommitter)
    open_, made = committer._open, committers.Producing

    class Counted(made):
        def __init__(self, properties):
            super().__init__(properties)
            self.producer = Steps(self.producer, step)

    def opened():
        committers.Producing = Counted
        try:
            return open_()
        finally:
            committers.Producing = made

    committer._open = opened
    return committer


#: The job whose process is killed.
JOB = "killed"


def main():
    """Commit a checkpoint, and die by SIGKILL at a step of the transaction: a number from 1, 0 for none.

    Arguments: SERVERS TOPIC STAGING STEP COMMITTABLE...
    """
    servers, topic, staging, step, *committables = sys.argv[1:]
    at, seen = int(step), []

    def count(name):
        seen.append(name)
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = KafkaSink(topic, servers, delivery="exactly_once", staging=staging)
    committer = sink.create_committer(CommitterContext(JOB))
    crashing(committer, count)
    committer.start(1)
    committer.commit(1, [one.encode() for one in committables])
    committer.close()
    print("done", len(seen))


ROOT = Path(__file__).resolve().parents[3]
#: Seconds for a test that plays dozens of jobs.
pytestmark = pytest.mark.timeout(900)


class Steady(KafkaSink):
    """Takes the column n of the kit as values, and crashes at a step of a transaction."""

    faults = None

    def create_writer(self, context, schema=None):
        writer = super().create_writer(context, schema)
        write = writer.write
        writer.write = lambda batch: write(
            pa.record_batch(
                [batch["n"].cast(pa.string()), pa.array([n % 3 for n in batch["n"].to_pylist()])],
                names=["value", "partition"],
            )
        )
        return writer

    def create_committer(self, context):
        committer = super().create_committer(context)
        if self.faults is not None:
            crashing(committer, lambda name: self.faults.step(name, ""))
        return committer


def job(broker, staging, faults):
    topic = broker.create()

    def make_sink(faults):
        sink = Steady(topic, broker.servers, delivery="exactly_once", staging=str(staging / topic))
        object.__setattr__(sink, "faults", faults)
        return sink

    def visible():
        return [int(message.value()) for message in broker.rows(topic)]

    return stream_sinks.StreamJob(make_sink, visible, faults), topic


@pytest.fixture
def staging():
    with tempfile.TemporaryDirectory(prefix="headgate-staging-") as folder:
        yield Path(folder)


#: Each action once, as each job takes seconds.
SCRIPT = (
    *(("write", 0, 2), ("write", 1, 1), ("checkpoint",), ("write", 1, 2), ("abort_checkpoint", 1)),
    *(("write", 0, 1), ("checkpoint", False), ("write", 0, 1), ("checkpoint",)),
    *(("repeat",), ("write", 0, 1), ("restart", 3)),
)
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_at_every_step_shows_each_row_once(broker, staging, part):
    faults = sinks.Faults()
    whole, topic = job(broker, staging, faults)
    stream_sinks.play(whole, SCRIPT)
    assert whole.crashes == []
    steps = list(faults.seen)
    kinds = {step.split()[-1] for step in steps}
    assert {"commit_transaction", "produce", "send_offsets_to_transaction"} <= kinds
    crashed = set()
    for number in range(part + 1, len(steps), 2 * PARTS):
        crashing_job, topic = job(broker, staging, sinks.Faults(number))
        stream_sinks.play(crashing_job, SCRIPT)
        crashed.update(crashing_job.crashes)
        left = [path for path in (staging / topic).rglob("*") if path.is_file()]
        assert left == [], crashing_job.crashes
    assert len(crashed) > 5


def test_random_jobs_with_random_crashes(broker, staging):
    chance = random.Random(20_251_125)
    for _ in range(8):
        script = [
            chance.choice(
                [
                    ("write", chance.randrange(3), chance.randrange(1, 6)),
                    ("checkpoint", chance.random() < 0.5),
                    ("abort_checkpoint", chance.randrange(3)),
                    ("repeat",),
                    ("restart", chance.randrange(1, 4)),
                ]
            )
            for _ in range(10)
        ]
        playing, _ = job(broker, staging, sinks.Faults(chance.randrange(1, 120)))
        stream_sinks.play(playing, script)


def stage(sink, numbers, name, checkpoint=1, restored=None):
    writer = sink.create_writer(WriterContext(name, 0, 1, "a", restored))
    with writer:
        writer.write(pa.record_batch({"value": [str(n) for n in numbers]}))
        return writer.prepare_commit(checkpoint)


def values(broker, topic):
    return sorted(int(message.value()) for message in broker.rows(topic))


def test_a_committer_that_is_killed_at_any_step(broker, staging):
    seen = []
    number = 0
    while not seen or seen[-1] != 0:
        number += 1
        topic = broker.create(partitions=1)
        sink = KafkaSink(
            topic, broker.servers, delivery="exactly_once", staging=str(staging / topic)
        )
        first = sink.create_committer(CommitterContext(JOB))
        first.start(None)
        first.close()
        staged = stage(sink, range(3), JOB).decode()
        command = [
            sys.executable,
            "-m",
            "tests.soak.kafka.test_kafka_exactly_once",
            broker.servers,
            topic,
        ]
        done = subprocess.run(
            [*command, str(staging / topic), str(number), staged],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode in {0, -9}, done.stderr
        seen.append(done.returncode)
        # What a killed transaction left is no row, before and after its end.
        assert values(broker, topic) in ([], [0, 1, 2])
        again = sink.create_committer(CommitterContext(JOB))
        again.start(1)
        again.commit(1, [staged.encode()])
        again.commit(1, [staged.encode()])
        assert values(broker, topic) == [0, 1, 2], number
        again.close()
    assert len(seen) > 12


def test_an_older_committer_is_locked_out(broker, staging):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    old = sink.create_committer(CommitterContext(name))
    old.start(None)
    staged = [stage(sink, range(5), name)]
    new = sink.create_committer(CommitterContext(name))
    new.start(1)
    with pytest.raises(SinkError, match="transaction"):
        old.commit(1, staged)
    new.commit(1, staged)
    assert values(broker, topic) == list(range(5))
    # The older one takes the transactional id back, and finds the rows there.
    old.commit(1, staged)
    assert values(broker, topic) == list(range(5))
    old.close()
    new.close()


def test_a_marker_that_kafka_forgot_is_an_error(broker, staging):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    committer.commit(1, [stage(sink, range(5), name)])
    committer.close()
    group = f"headgate-{name}-{topic}"
    (answer,) = broker.admin.delete_consumer_groups([group]).values()
    answer.result(ANSWER)
    late = sink.create_committer(CommitterContext(name))
    with pytest.raises(SinkError, match="does not know any more"):
        late.start(1)
    late.close()


def test_a_job_that_continues_from_before_its_last_commit_is_refused(broker, staging):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    committer.commit(2, [stage(sink, range(5), name, checkpoint=2)])
    committer.close()
    for restored in (None, 1):
        again = sink.create_committer(CommitterContext(name))
        with pytest.raises(SinkError, match="would write again"):
            again.start(restored)
        again.close()


def test_staged_rows_that_are_gone_are_an_error_and_no_row_is_shown(broker, staging):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    staged = [stage(sink, range(5), name), stage(sink, [], name)]
    staged = [one for one in staged if one]
    (file,) = staging.rglob("*.arrow")
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    with pytest.raises(SinkError, match="missing or have changed"):
        committer.commit(1, staged)
    assert values(broker, topic) == []
    file.write_bytes(whole)
    committer.commit(1, staged)
    assert values(broker, topic) == list(range(5))
    committer.close()


@pytest.mark.parametrize("call", ["produce", "send_offsets_to_transaction", "commit_transaction"])
def test_a_broker_that_dies_in_a_transaction(broker, staging, call):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(
        topic, broker.servers, delivery="exactly_once", staging=str(staging), timeout=15
    )
    committer = sink.create_committer(CommitterContext(name))
    deaths, committed = [], []

    def step(name):
        # The first start has a transaction of its own, without rows.
        if name == f"before {call}" and committed:
            deaths.append(name)
            committed.clear()
            broker.kill()
            broker.start()

    crashing(committer, step)
    committer.start(None)
    committed.append("the first marker")
    staged = [stage(sink, range(500), name)]
    for _ in range(5):
        try:
            committer.commit(1, staged)
            break
        except SinkError:
            continue
    assert deaths
    assert values(broker, topic) == list(range(500))
    committer.commit(1, staged)
    assert values(broker, topic) == list(range(500))
    committer.close()
    assert broker.admin.list_topics(timeout=ANSWER).topics[topic].partitions


def test_the_marker_is_an_offset_of_a_group_of_its_own(broker, staging):
    from confluent_kafka import ConsumerGroupTopicPartitions

    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    committer.commit(7, [stage(sink, range(2), name, checkpoint=7)])
    committer.close()
    asked = ConsumerGroupTopicPartitions(f"headgate-{name}-{topic}", [TopicPartition(topic, 0)])
    (answer,) = broker.admin.list_consumer_group_offsets([asked]).values()
    assert [one.offset for one in answer.result(ANSWER).topic_partitions] == [8]


def test_a_committable_that_an_earlier_checkpoint_committed_is_left_out(broker, staging):
    topic, name = broker.create(), f"job-{uuid.uuid4().hex[:6]}"
    sink = KafkaSink(topic, broker.servers, delivery="exactly_once", staging=str(staging))
    committer = sink.create_committer(CommitterContext(name))
    committer.start(None)
    first = stage(sink, [1], name)
    committer.commit(1, [first])
    second = stage(sink, [2], name, checkpoint=2, restored=1)
    committer.commit(2, [first, second])
    committer.commit(3, [second])
    assert values(broker, topic) == [1, 2]
    committer.close()


if __name__ == "__main__":
    main()
