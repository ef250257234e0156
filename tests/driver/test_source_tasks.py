"""The reader in a producer task: its messages, its batches, its end. No Spark."""

import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.driver.source_actors import GreetingReader, Parts, StuckReader, read_at_once
from tests.faults.patience import wait_until

from headgate.errors import PeerLostError, SourceError
from headgate.source import SourceEvent
from headgate.spark.tasks.source_tasks import Reading
from headgate.spark.tasks.task import SourcePlan
from headgate.spark.wire.messages import Message
from headgate.spark.wire.source_messages import assignments, event_fields, event_of


class Control:
    """Records the messages sent."""

    def __init__(self):
        self.sent = []

    def send(self, kind, fields=None):
        self.sent.append((kind, fields or {}))

    @property
    def kinds(self):
        return [kind for kind, _ in self.sent]


@pytest.fixture
def reading():
    made = []

    def read(source):
        sizes = {"memory": 1, "segment_size": 1, "max_record_size": 1}
        task = SimpleNamespace(num_partitions=2, options=sizes)
        control = Control()
        one = Reading(task, SourcePlan(source, source.name, 3), control, 2)
        made.append(one)
        return one, control

    yield read
    for one in made:
        one.close()
    wait_until(lambda: not fetchers(), "fetchers")


def fetchers():
    return [t.name for t in threading.enumerate() if t.name.startswith("headgate-fetcher")]


def give(reading, *numbers):
    splits = [(f"part {n}", b'{"number":%d}' % n) for n in numbers]
    for fields in assignments("parts", 1, splits):
        reading.handle(Message("ASSIGN", 1, 0, fields))


def test_a_reader_says_that_it_is_there_asks_reads_and_ends(reading):
    one, control = reading(Parts(2))
    give(one, 0, 1)
    one.handle(Message("NO_MORE_SPLITS"))
    batches = list(one.records())
    assert [batch["part"][0].as_py() for batch in batches] == [0, 1]
    assert {batch["reader"][0].as_py() for batch in batches} == {2}
    assert control.kinds[:2] == ["READER", "SPLIT_REQUEST"]
    said = [fields["ids"] for kind, fields in control.sent if kind == "SPLITS_FINISHED"]
    assert [name for ids in said for name in ids] == ["part 0", "part 1"]
    assert not fetchers()


@pytest.mark.parametrize("number", [0, 1])
def test_a_reader_that_waits_for_ever_is_stopped_and_failed(reading, number):
    def act(action):
        one, control = reading(Parts(2, reader=StuckReader))
        give(one, 1)
        thread = threading.Thread(
            target=lambda: (wait_until(fetchers, "a fetcher"), action(one)), daemon=True
        )
        thread.start()
        try:
            return list(one.records())
        finally:
            thread.join()
            one.close()
            assert "SPLITS_FINISHED" not in control.kinds
            assert not fetchers()

    if number:
        assert act(lambda one: one.stop()) == []
    else:
        with pytest.raises(PeerLostError, match="somebody is gone"):
            act(lambda one: one.fail(PeerLostError("somebody is gone")))


def test_events_go_both_ways(reading):
    one, control = reading(Parts(1, reader=GreetingReader))
    answer = event_fields("parts", SourceEvent("welcome", b"\x002"))
    one.handle(Message("SOURCE_EVENT", 1, 0, answer))
    give(one, 0)
    one.handle(Message("NO_MORE_SPLITS"))
    assert len(list(one.records())) == 1
    kind, fields = control.sent[1]
    assert kind == "SOURCE_EVENT"
    assert event_of(fields) == SourceEvent("hello", bytes(range(256)) + b"2")


def test_an_error_of_the_source_carries_the_traceback_of_its_cause(reading):
    def read(part, context):
        if part.number == 1:
            raise OSError("the disk is gone")
        yield from read_at_once(part, context)

    one, _ = reading(Parts(2, read))
    give(one, 0, 1)
    with pytest.raises(SourceError, match="part 1") as caught:
        list(one.records())
    assert 'raise OSError("the disk is gone")' in caught.value.cause_text


def test_the_options_of_the_job_reach_the_reader(reading):
    seen = {}

    def read(part, context):
        seen.update(context.configuration, readers=context.current_parallelism)
        return iter([pa.RecordBatch.from_pydict({"id": [1]})])

    one, _ = reading(Parts(1, read))
    give(one, 0)
    one.handle(Message("NO_MORE_SPLITS"))
    assert len(list(one.records())) == 1
    assert seen["num_partitions"] == "2"
    assert seen["readers"] == 3
