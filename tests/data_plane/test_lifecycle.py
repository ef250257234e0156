"""Closing once and twice, use after a close, failing and aborting."""

import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, open_gates

import headgate as hg

Closed = hg.errors.ClosedError


def everything(producer):
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate([partition.address(0)], sealed=False)
    return partition, gate, hg.RecordWriter(partition), hg.RecordReader(gate), hg.BufferReader(gate)


USES = {
    "address": lambda e, p, g, w, r, b: e.address,
    "create_result_partition": lambda e, p, g, w, r, b: e.create_result_partition(1),
    "create_input_gate": lambda e, p, g, w, r, b: e.create_input_gate(),
    "partition.address": lambda e, p, g, w, r, b: p.address(0),
    "release_subpartition": lambda e, p, g, w, r, b: p.release_subpartition(0),
    "wait_consumed": lambda e, p, g, w, r, b: p.wait_consumed(5),
    "partition.fail": lambda e, p, g, w, r, b: p.fail("late"),
    "add_channel": lambda e, p, g, w, r, b: g.add_channel(ADDRESS),
    "seal": lambda e, p, g, w, r, b: g.seal(),
    "gate.fail": lambda e, p, g, w, r, b: g.fail("late"),
    "RecordWriter": lambda e, p, g, w, r, b: hg.RecordWriter(p, NUMBERS),
    "emit": lambda e, p, g, w, r, b: w.emit(numbers(1)),
    "broadcast_emit": lambda e, p, g, w, r, b: w.broadcast_emit(numbers(1)),
    "broadcast_event": lambda e, p, g, w, r, b: w.broadcast_event("late"),
    "flush": lambda e, p, g, w, r, b: w.flush(),
    "finish": lambda e, p, g, w, r, b: w.finish(),
    "next": lambda e, p, g, w, r, b: next(r),
    "next buffer": lambda e, p, g, w, r, b: next(b),
}
ADDRESS = hg.ChannelAddress("127.0.0.1", 1, bytes(16), 0, bytes(16))


@pytest.mark.parametrize("use", USES)
def test_nothing_works_in_a_closed_environment(environment, use):
    producer = environment()
    objects = everything(producer)
    producer.close()
    error = Task(USES[use], producer, *objects).error(5)
    assert isinstance(error, Closed), repr(error)
    assert "closed" in str(error)


def test_every_close_may_come_twice(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1))
    writer.finish()
    for _ in range(2):
        reader.close()
        gate.close()
        partition.close()
        consumer.close()
        producer.close()
    gate.close()
    partition.close()


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "closed"])
@pytest.mark.parametrize("serializer", ["bytes", "arrow"])
def test_a_closed_partition_takes_back_the_segments_that_its_writer_fills(
    environment, serializer, fails
):
    producer = environment(memory="1m", segment_size="64k")

    def emit_to_each(writer):
        for _ in range(12):
            writer.emit(b"x" if serializer == "bytes" else numbers(1))

    def open_writer():
        partition = producer.create_result_partition(12, schema=NUMBERS)
        return partition, hg.RecordWriter(partition, serializer=serializer, buffer_timeout=-1)

    partition, writer = open_writer()
    emit_to_each(writer)
    assert producer.stats()["segments"]["held"] == 12
    if fails:
        partition.fail("enough")
    partition.close()
    assert producer.stats()["segments"]["held"] == 0
    assert isinstance(Task(emit_to_each, writer).error(5), hg.HeadgateError)
    Task(emit_to_each, open_writer()[1]).result()


def test_an_environment_that_was_never_used(environment):
    with environment() as unused:
        assert len(unused.process_id) == 16
    with pytest.raises(Closed):
        unused.create_input_gate()


def test_two_environments_have_two_names(environment):
    assert environment().process_id != environment().process_id


@pytest.mark.parametrize("call", ["emit", "broadcast_emit", "broadcast_event"])
def test_a_finished_writer_takes_nothing_more(link, call):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(3))
    with pytest.raises(Closed):
        getattr(writer, call)("late" if call == "broadcast_event" else numbers(1))
    writer.finish()
    assert_same(Task(drain, gate).result(), numbers(3))


def test_a_closed_partition_refuses_its_writer(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    partition.close()
    # All subpartitions are released, so rows may be dropped. Waiting must not hang.
    for call in (lambda: writer.emit(numbers(100_000)), writer.finish, writer.flush):
        outcome = Task(call).outcome(5)
        assert outcome is None or isinstance(outcome, Closed), repr(outcome)


def test_a_reader_that_is_at_its_end_stays_there(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(3))
    reader = hg.RecordReader(gate)
    assert len(Task(list, reader).result()) == 1
    for _ in range(2):
        assert Task(list, reader).result() == []


def test_an_exception_in_the_block_fails_the_consumers_in_its_words(link):
    producer, consumer = link()
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)

    def produce():
        with hg.RecordWriter(partition) as writer:
            writer.emit(numbers(10))
            raise ValueError("row 7 of user grüße is odd")

    assert isinstance(Task(produce).error(), ValueError)
    for gate in gates:
        error = Task(drain, gate).error(5)
        assert isinstance(error, hg.errors.ProducerFailedError)
        assert "ValueError: row 7 of user grüße is odd" in str(error)


def test_rows_before_an_exception_are_no_success(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(10))
    writer.flush()
    assert_same(Task(next, reader).result(), numbers(10))
    writer.fail(ValueError("no more"))
    writer.finish()
    error = Task(next, reader).error(5)
    assert isinstance(error, hg.errors.ProducerFailedError)
    assert "no more" in str(error)


def test_the_first_failure_counts(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    partition.fail("first")
    partition.fail("second")
    text = str(Task(drain, gate).error(5))
    assert "first" in text
    assert "second" not in text
    text = str(Task(partition.wait_consumed, 5).error(5))
    assert "first" in text


def test_a_failed_partition_wakes_its_writer(link):
    producer, consumer = link(memory="1m")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition)
    writing = Task(lambda: [writer.emit(numbers(10_000)) for _ in range(1000)])
    waiting = Task(partition.wait_consumed)
    with pytest.raises(AssertionError, match="hangs"):
        writing.join(0.3)
    assert [gate.num_channels for gate in gates] == [1]
    partition.fail("enough")
    assert "enough" in str(writing.error(2))
    assert "enough" in str(waiting.error(2))


def test_abort_ends_every_call_of_its_environment(link):
    producer, consumer = link(memory="1m")
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, selector=lambda b: [0] * len(b))
    calls = [
        Task(lambda: [writer.emit(numbers(10_000)) for _ in range(1000)]),
        Task(partition.wait_consumed),
        Task(drain, gates[1]),
    ]
    with pytest.raises(AssertionError, match="hangs"):
        calls[0].join(0.3)
    producer.abort(RuntimeError("the run is over"))
    for call in calls:
        error = call.error(2)
        assert isinstance(error, hg.HeadgateError)
        assert "the run is over" in str(error)


def test_closing_the_environment_ends_every_call(link):
    producer, consumer = link(memory="1m")
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, selector=lambda b: [0] * len(b))
    calls = [
        Task(lambda: [writer.emit(numbers(10_000)) for _ in range(1000)]),
        Task(partition.wait_consumed),
        Task(drain, gates[1]),
    ]
    with pytest.raises(AssertionError, match="hangs"):
        calls[0].join(0.3)
    Task(producer.close).result(5)
    for call in calls:
        error = call.error(2)
        assert isinstance(error, hg.HeadgateError), repr(error)


def test_wait_consumed_with_a_timeout(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    assert Task(partition.wait_consumed, 0).result(2) is False
    assert Task(partition.wait_consumed, 0.2).result(2) is False
    writer = hg.RecordWriter(partition)

    def produce():
        # More than a consumer receives before it is read.
        for _ in range(200):
            writer.emit(numbers(10_000))
        writer.finish()

    writing = Task(produce)
    assert Task(partition.wait_consumed, 0.3).result(2) is False
    waiting = Task(partition.wait_consumed, 1e18)
    Task(drain, gate).result()
    writing.result()
    assert waiting.result(5) is True
    assert Task(partition.wait_consumed, 0).result(2) is True
    for odd in (-1, float("nan")):
        assert isinstance(Task(partition.wait_consumed, odd).error(2), ValueError)


@pytest.mark.parametrize(
    "options",
    [
        {"secret": b"short"},
        {"secret": bytes(33)},
        {"exchange_id": b"short"},
        {"exchange_id": b""},
        {"run": -1},
        {"epoch": 2**32},
        {"memory": "lots"},
        {"memory": 0},
        {"memory": "-1m"},
        {"segment_size": 1000},
        {"segment_size": "1g"},
        {"listen": "nowhere"},
        {"max_record_size": 0},
    ],
    ids=str,
)
def test_options_outside_their_limits(options):
    with pytest.raises(hg.errors.OptionError) as caught:
        hg.ShuffleEnvironment(**options)
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize("listen", ["203.0.113.1:0", "no.such.host.invalid:0"])
def test_an_address_that_cannot_be_listened_on(environment, listen):
    error = Task(lambda: environment(listen=listen).address).error()
    assert isinstance(error, hg.errors.ConnectError)
    assert listen.split(":", maxsplit=1)[0] in str(error)


def test_wrong_numbers_of_subpartitions(environment):
    producer = environment()
    for wrong in ({"num_subpartitions": 0}, {"num_subpartitions": -1}):
        with pytest.raises(hg.errors.OptionError):
            producer.create_result_partition(**wrong)
    with pytest.raises(hg.errors.OptionError):
        producer.create_result_partition(2, wanted=[2])
    with pytest.raises(hg.errors.OptionError):
        producer.create_result_partition(2, kind="hybrid_full")
    with pytest.raises(hg.errors.OptionError):
        producer.create_result_partition(2).address(2)
