"""What peers and strangers get over the wire: no secret, and no byte of an earlier exchange.

A relay records the connections, those of the data and those of a worker to the driver. Before that, rows that are easy to find fill the pools of both processes; the
search is for what is left of them in the padding of pages, under nulls and in the rest of a segment.
"""

import base64
import hmac
import re
import secrets
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
import wire
from plane import Task, assert_same, drain, wait_until
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import TO_CLIENT, TO_TARGET
from tests.kit.places import EXCHANGE, serving, told

import headgate as hg
from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Message
from headgate.spark.wire import CODEC

SEGMENT = 64 << 10
SEGMENTS = 32
#: Segments that the rows of a producer fill at least.
MOST = 20
POOL = {"memory": SEGMENTS * SEGMENT, "segment_size": SEGMENT, "same_host_link": "off"}
#: Fills the pools. No byte of it is in the rows that follow.
OLD = b"\xe5\x9a\xd3\xb7\xf1\xc9\x95\xaf"
#: What a search for rows has to find.
NEW = b"rows of this exchange"


def is_in(needle, stream, *, window=4):
    """Return True if any ``window`` bytes of a text, which may repeat, are in a stream."""
    twice = needle * 2
    pieces = {twice[at : at + window] for at in range(len(needle))}
    return re.search(b"|".join(map(re.escape, pieces)), stream) is not None


def old_bytes():
    """Return the bytes of old rows in the memory of this process that has the most of them."""
    most = 0
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, _, _, inode, *_ = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in place.split("-"))
            if rights.startswith("rw") and inode == "0" and end - start >= SEGMENT:
                memory.seek(start)
                with suppress(OSError):  # another thread has given it back meanwhile
                    most = max(most, len(OLD) * memory.read(end - start).count(OLD))
    return most


class Wire:
    """A producer and a consumer, and the bytes of the exchanges between them."""

    def __init__(self, environment, **options):
        self.producer = environment(**{**POOL, **options})
        self.consumer = environment(**{**POOL, **options})

    def exchange(self, write, *, kind="pipelined", schema=None, fails=False, **options):
        """Pass what ``write(writer)`` emits through a relay; return the records, and the bytes each way."""
        partition = self.producer.create_result_partition(1, schema=schema, kind=kind)
        address = partition.address(0)

        def produce():
            with hg.RecordWriter(partition, schema, **options) as writer:
                write(writer)

        writing = Task(produce)
        # As much is written before it is read as fits, so that the rows take all segments.
        if kind == "blocking":
            writing.result()
        wait_until(lambda: not writing.running or self.peaks()[0] >= MOST)
        with FaultProxy(address.host, address.port) as relay:
            gate = self.consumer.create_input_gate([relay.address(address)])
            records = Task(drain, gate, **options).result()
            writing.result()
            assert Task(partition.wait_consumed, 10).result()
            gate.close()
            partition.close()
            # The next exchange gets a connection of its own, through its own relay.
            relay.cut()
            wait_until(lambda: relay.connections == 0)
            return records, [bytes(relay.recorded[way]) for way in (TO_TARGET, TO_CLIENT)]

    def fill(self):
        """Fill the pools with old rows; return the segments that were in use, of each process."""
        batch = pa.record_batch({"old": pa.array([OLD * 7000])})
        count = 3 * SEGMENTS
        table, (_, stream) = self.exchange(
            lambda writer: [writer.emit(batch) for _ in range(count)], schema=batch.schema
        )
        assert table.num_rows == count
        assert is_in(OLD, stream), "the search finds old rows on the wire"
        return self.peaks()

    def peaks(self):
        return [each.stats()["segments"]["peak"] for each in (self.producer, self.consumer)]


@pytest.fixture
def full(environment):
    """Return two processes whose pools are full of old rows, and check that they still are in the end."""
    made = Wire(environment)
    peaks = made.fill()
    assert peaks[0] >= MOST
    assert old_bytes() >= 16 * SEGMENT
    yield made
    assert made.peaks() == peaks, "the rows were in segments that had no old rows"
    assert old_bytes() >= 16 * SEGMENT


def short_rows():
    """Return a few rows of each kind of column; each page of them is mostly padding."""
    struct = pa.struct([("a", pa.int8()), ("b", pa.string())])
    return pa.record_batch(
        {
            "text": pa.array(["", None, NEW.decode()]),
            "flag": pa.array([True, None, False]),
            "tiny": pa.array([1, None, 3], pa.int8()),
            "wide": pa.array([1, None, 3], pa.decimal128(38, 2)),
            "when": pa.array([None, None, 1], pa.timestamp("us")),
            "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
            "list": pa.array([[1, None], None, []], pa.list_(pa.int16())),
            "pair": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], struct),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
            "word": pa.array(["x", None, "y"]).dictionary_encode(),
            "none": pa.nulls(3),
        }
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["pipelined", "hybrid", "blocking"])
def test_pages_have_no_rows_of_an_earlier_exchange(full, kind):
    batch = short_rows()

    def write(writer):
        for size in (3, 1, 2, 0, 3):
            # One page for each batch.
            writer.emit(batch.slice(0, size))
            writer.flush()

    table, streams = full.exchange(write, schema=batch.schema, kind=kind)
    assert table.num_rows == 9
    assert_same(table.slice(0, 3), pa.Table.from_batches([batch]))
    assert is_in(NEW, streams[1]), "the search finds the rows of this exchange"
    assert not any(is_in(OLD, stream) for stream in streams)


@pytest.mark.soak
@pytest.mark.parametrize("serializer", ["bytes", "pickle"])
def test_records_and_events_have_no_rows_of_an_earlier_exchange(full, serializer):
    # Some end in the middle of a segment, and some continue in the next one.
    given = [NEW * size for size in (0, 1, 2, 3, SEGMENT // len(NEW), 1, 7000)]

    def write(writer):
        for record in given:
            writer.emit(record)
            writer.flush()
            writer.broadcast_event("mine", b"a body")

    records, streams = full.exchange(write, serializer=serializer)
    assert [bytes(record) for record in records] == given
    assert is_in(NEW, streams[1])
    assert not any(is_in(OLD, stream) for stream in streams)


def test_errors_have_no_rows_of_an_earlier_exchange(full):
    partition = full.producer.create_result_partition(1, schema=short_rows().schema)
    address = partition.address(0)
    with FaultProxy(address.host, address.port) as relay:
        gate = full.consumer.create_input_gate([relay.address(address)])
        reading = Task(drain, gate)
        writer = hg.RecordWriter(partition)
        writer.emit(short_rows())
        writer.flush()
        writer.fail(ValueError(f"{NEW.decode()}, failed by the test"))
        error = reading.error()
        assert isinstance(error, hg.errors.ProducerFailedError)
        assert "failed by the test" in str(error)
        gate.close()
        relay.cut()
        wait_until(lambda: relay.connections == 0)
        streams = [bytes(relay.recorded[way]) for way in (TO_TARGET, TO_CLIENT)]
    assert is_in(NEW, streams[1])
    assert not any(is_in(OLD, stream) for stream in streams)


def answers(address, secret):
    """Return all that strangers are told: those without words, with wrong ones, and with a wrong proof."""
    told = b""
    proof = b"HDGT\3" + bytes(32)
    for said in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(86),
        wire.hello(exchange=b"another exchange"),
        wire.hello(role=2),
        wire.hello(versions=(7, 9)),
        wire.hello() + proof,
        wire.hello() + proof[:-1],
    ):
        with wire.connect(address) as sock:
            sock.sendall(said)
            sock.settimeout(0.5)
            try:
                while more := sock.recv(65536):
                    told += more
            except (ConnectionError, TimeoutError):
                continue
    sock, steps = wire.consumer(address, secret)
    with sock:
        assert steps[-1] == b"HDGT\5"
    return told + b"".join(steps[1::2])


def tells(*streams, private):
    """Return True if a stream has a piece of one of the private keys, as bytes or as text."""
    for key in private:
        texts = (key.hex().encode(), base64.b64encode(key)[:-1])
        for stream in streams:
            if is_in(key, stream, window=6) or any(is_in(one, stream, window=12) for one in texts):
                return True
    return False


def test_the_search_finds_keys_in_any_form():
    key = secrets.token_bytes(32)
    for piece in (key[5:11], key.hex().encode()[9:21], base64.b64encode(key)[7:19]):
        assert tells(bytes(40), b"before " + piece + b" after", private=(key,))
    assert not tells(secrets.token_bytes(4096), private=(key,))


def control_keys(secret):
    """Return the secret and all keys that come of it."""
    pseudo_random = hmac.digest(bytes(32), secret, "sha256")
    control = hmac.digest(pseudo_random, b"headgate control v2" + EXCHANGE + b"\1", "sha256")
    return secret, control, wire.derive(secret, EXCHANGE, 1), wire.derive(secret, EXCHANGE)


@pytest.mark.parametrize("tls", [False, True], ids=["off", "require"])
def test_control_connections_do_not_carry_the_secret(tls):
    """All messages of a consumer of a kept exchange and the driver."""
    secret = secrets.token_bytes(32)
    key = CoordinatorAddress("", 0, EXCHANGE, secret, tls=tls).key()
    with (
        serving(keys={EXCHANGE: key}) as places,
        FaultProxy("127.0.0.1", places.server.port) as relay,
    ):
        place = CoordinatorAddress("127.0.0.1", relay.port, EXCHANGE, secret, timeout=5.0, tls=tls)
        connection = WorkerConnection(place, CODEC)
        with connection.sock:
            connection.send(Message("HOST_LOST", {"process": "ab" * 16}))
            assert told(connection) == ["HOSTS"]
        wait_until(lambda: relay.connections == 0)
        assert relay.dialed == 1
        streams = [bytes(relay.recorded[way]) for way in (TO_TARGET, TO_CLIENT)]
    assert not tells(*streams, private=control_keys(secret))
    # The messages can be read exactly if there is no TLS, so the search was through all of them.
    for word, stream in ((b"HOST_LOST", streams[0]), (b"HOSTS", streams[1])):
        assert (word in stream) is not tls
        assert (EXCHANGE in streams[0]) is not tls
    for way in streams if tls else ():
        assert b"HDGT" not in way


def test_nobody_gets_the_secret_nor_strangers_old_rows(environment):
    secret = secrets.token_bytes(32)
    processes = Wire(environment, secret=secret)
    processes.fill()
    batch = short_rows()
    table, streams = processes.exchange(lambda writer: writer.emit(batch), schema=batch.schema)
    assert table.num_rows == 3
    partition = processes.producer.create_result_partition(1, schema=batch.schema)
    address = partition.address(0)
    told = answers(address, secrets.token_bytes(32))
    assert told.count(b"HDGT\2") == 3, "three strangers named the exchange, and got a challenge"
    assert not is_in(OLD, told)
    assert not is_in(NEW, told)
    assert not tells(*streams, told, private=(secret, wire.derive(secret)))
    # What the search would find: the peer's own number is sent in the clear.
    assert is_in(processes.producer.process_id, streams[1], window=6)
