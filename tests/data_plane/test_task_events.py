"""Task events, which travel from readers to producers (spec 8.4, 9.4, 11)."""

import dataclasses
import random
import struct
import threading
import time

import pytest
import wire
from plane import SECRET, Task, wait_until

import headgate as hg
from headgate import flink


def opened(link, n=1, **options):
    """Return a partition of bytes records, its writer and a gate for each subpartition."""
    producer, consumer = link()
    partition = producer.create_result_partition(n, **options)
    writer = hg.RecordWriter(partition, serializer="bytes")
    gates = [consumer.create_input_gate([partition.address(i)]) for i in range(n)]
    return partition, writer, gates


def read(gate):
    return list(hg.RecordReader(gate, serializer="bytes"))


def came(partition):
    wait_until(lambda: partition._native.has_task_events)


def test_handlers_run_on_the_writers_thread_in_order(link):
    partition, writer, (gate,) = opened(link)
    seen = []
    note = lambda event: seen.append((threading.get_ident(), *event))  # noqa: E731
    partition.on_task_event("go", note)
    partition.on_task_event("stop", note)
    Task(gate.send_task_event, "go", b"1").result()
    Task(gate.send_task_event, "stop", b"2" * 50_000).result()
    came(partition)
    time.sleep(0.05)
    assert seen == [], "only the writer calls handlers"
    while len(seen) < 2:
        writer.emit(b"record")
    me = threading.get_ident()
    assert seen == [(me, 0, "go", b"1"), (me, 0, "stop", b"2" * 50_000)]
    writer.finish()
    assert set(Task(read, gate).result()) == {b"record"}


@pytest.mark.parametrize("call", ["emit", "flush", "finish"])
def test_each_call_of_the_writer_takes_them(link, call):
    partition, writer, (gate,) = opened(link)
    seen = []
    partition.on_task_event("x", seen.append)
    gate.send_task_event("x", b"body")
    came(partition)
    {"emit": lambda: writer.emit(b"r"), "flush": writer.flush, "finish": writer.finish}[call]()
    assert seen == [hg.TaskEvent(0, "x", b"body")]


def test_emit_raises_the_exception_of_a_handler(link):
    partition, writer, (gate,) = opened(link)

    def refuse(event):
        raise ValueError(event.name)

    partition.on_task_event("x", refuse)
    gate.send_task_event("x")
    came(partition)
    with pytest.raises(ValueError, match="x"):
        writer.emit(b"r")
    writer.emit(b"r")


def test_spec_section_9_4_an_event_without_a_handler_ends_that_channel_only(link):
    partition, writer, (first, second) = opened(link, 2)
    partition.on_task_event("known", lambda event: None)
    writer.emit(b"early")
    writer.emit(b"early")
    writer.flush()
    first.send_task_event("unknown")
    error = Task(read, first).error()
    assert isinstance(error, hg.errors.TaskEventError)
    assert "unknown" in str(error)
    assert error.code == "HG-3009"
    first.close()
    second.send_task_event("known")
    came(partition)
    for _ in range(100):
        writer.emit(b"late")
    writer.finish()
    assert Task(read, second).result() == [b"early"] + [b"late"] * 50
    assert Task(partition.wait_consumed, 10).result(), "the producer continues"


def test_spec_8_16_channels_that_come_later_get_earlier_events(link):
    producer, consumer = link()
    partitions = [producer.create_result_partition(1) for _ in range(3)]
    seen = [[] for _ in partitions]
    for partition, events in zip(partitions, seen, strict=True):
        partition.on_task_event("n", lambda event, events=events: events.append(event.body))
    gate = consumer.create_input_gate([partitions[0].address(0)], sealed=False)
    gate.send_task_event("n", b"1")
    gate.add_channel(partitions[1].address(0))
    gate.send_task_event("n", b"2")
    gate.add_channel(partitions[2].address(0))
    gate.seal()
    gate.send_task_event("n", b"3")

    def all_came():
        for partition in partitions:
            partition.process_task_events()
        return all(len(events) == 3 for events in seen)

    wait_until(all_came)
    assert seen == [[b"1", b"2", b"3"]] * 3


def test_an_event_for_a_partition_that_is_still_to_come_waits_for_it(link):
    producer, consumer = link()
    known = producer.create_result_partition(1)
    later = bytes(range(16))
    address = dataclasses.replace(known.address(0), partition_id=later)
    gate = consumer.create_input_gate([address])
    gate.send_task_event("start", b"7")
    time.sleep(0.1)
    seen = []
    partition = producer.create_result_partition(
        1, partition_id=later, on_task_event={"start": seen.append}
    )
    wait_until(lambda: partition.process_task_events() or seen)
    assert seen == [hg.TaskEvent(0, "start", b"7")]


def test_a_second_handler_and_an_event_over_a_segment_are_refused(link):
    partition, _, (gate,) = opened(link)
    partition.on_task_event("x", print)
    with pytest.raises(hg.errors.ClosedError, match="handler already"):
        partition.on_task_event("x", print)
    with pytest.raises(hg.errors.RecordTooLargeError, match="65546"):
        gate.send_task_event("x", bytes(65_535))
    gate.close()
    with pytest.raises(hg.errors.ClosedError):
        gate.send_task_event("x")


def test_more_events_than_may_wait_are_an_error_of_their_sender(link):
    partition, _, (gate,) = opened(link)
    partition.on_task_event("x", lambda event: None)
    for _ in range(1025):
        gate.send_task_event("x")
    error = Task(read, gate).error()
    assert isinstance(error, hg.errors.TaskEventError)
    assert "1024 task events" in str(error)


def test_random_events_of_many_readers_all_arrive_in_order(link):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    partition, writer, gates = opened(link, 4)
    seen = [[] for _ in gates]
    for name in "ab":
        partition.on_task_event(name, lambda event: seen[event.subpartition].append(event[1:]))
    sent = [
        [(chance.choice("ab"), chance.randbytes(chance.randrange(2000))) for _ in range(200)]
        for _ in gates
    ]
    readers = [Task(read, gate) for gate in gates]
    senders = [
        Task(lambda gate=gate, events=events: [gate.send_task_event(*each) for each in events])
        for gate, events in zip(gates, sent, strict=True)
    ]
    for turn in range(2000):
        writer.emit(b"%d" % turn)
        if chance.random() < 0.05:
            writer.flush()
    for sender in senders:
        sender.result()
    wait_until(lambda: partition.process_task_events() or sum(map(len, seen)) == 800)
    assert seen == sent
    writer.finish()
    got = [record for reader in readers for record in reader.result()]
    assert sorted(got) == sorted(b"%d" % turn for turn in range(2000))


def test_a_union_sends_to_the_producers_of_all_its_gates(link):
    producer, consumer = link()
    partitions = [producer.create_result_partition(1) for _ in range(2)]
    for partition in partitions:
        partition.on_task_event("x", print)
    gates = [consumer.create_input_gate([partition.address(0)]) for partition in partitions]
    flink.UnionInputGate(gates).send_task_event("x")
    for partition in partitions:
        came(partition)


def custom(name, body):
    return struct.pack(">iH", 3, len(name)) + name + struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("payload", [struct.pack(">i", 2), b"\xff"], ids=["not custom", "garbage"])
def test_a_task_event_that_is_none_of_the_user_ends_its_channel(environment, payload):
    partition = environment().create_result_partition(1)
    address = partition.address(0)
    link, _ = wire.consumer(address, SECRET)
    with link:
        link.send_frames(wire.partition_request(address))
        link.sendall(wire.masked_payload(wire.task_event(payload, 0), link.mask))
        answer = wire.receive(link, 17)
        assert struct.unpack(">IH", answer[9:15]) == (0, 3009)


def test_a_record_asks_for_task_events_only_if_a_handler_is_registered(environment):
    partition = environment().create_result_partition(1)
    writer = hg.RecordWriter(partition, serializer="bytes")
    asked = []
    partition.process_task_events = lambda: asked.append(len(asked))
    writer.emit(b"one")
    writer.flush()
    assert asked == []
    partition.on_task_event("x", print)
    writer.emit(b"two")
    assert asked == [0]
