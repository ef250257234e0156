"""The socket source: streams that arrive, break and end, wake-ups, and no leaked threads."""

from __future__ import annotations

import socket
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import ipc
from tests.kit.contexts import DEADLINE, FakeEnumeratorContext, enumerated

from headgate.errors import OptionError, SchemaMismatchError, SourceError
from headgate.source import Boundedness, SocketSource, read
from headgate.source.base.split_reader import SplitsAddition
from headgate.source.sequential import SequentialSplitReader
from headgate.source.socket import SocketSplit
from headgate.source.testing import SourceTestBase

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def batch(first, rows=3):
    numbers = range(first, first + rows)
    return pa.record_batch([list(numbers), [str(n) for n in numbers]], schema=SCHEMA)


class Server:
    """Serves one connection after another, each with the next of its functions."""

    def __init__(self, *serve):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.go_on = threading.Event()
        self.errors = []
        self.thread = threading.Thread(target=self.run, args=(serve,))
        self.thread.start()

    def run(self, serve):
        for one in serve:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            try:
                with connection, connection.makefile("wb") as file:
                    one(self, file)
            except (OSError, pa.ArrowException) as error:
                self.errors.append(error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()


def stream(*batches):
    def serve(_, file):
        with ipc.new_stream(file, SCHEMA) as writer:
            for one in batches:
                writer.write_batch(one)

    return serve


def then_hang(*batches, garbage=b""):
    def serve(server, file):
        writer = ipc.new_stream(file, SCHEMA)
        for one in batches:
            writer.write_batch(one)
        file.write(garbage)
        file.flush()
        server.go_on.wait(DEADLINE)

    return serve


def then_break(*batches):
    def serve(_, file):
        writer = ipc.new_stream(file, SCHEMA)
        for one in batches:
            writer.write_batch(one)
        file.write(b"\xff\xff\xff\xff\x10")

    return serve


def ids(records):
    return [number for record in records for number in record["id"].to_pylist()]


def split_reader(port, **options):
    """Return a split reader, and its split."""
    source = SocketSource("127.0.0.1", port, SCHEMA, **options)
    reader = SequentialSplitReader(lambda split: source.open_split(split, 1))
    split = SocketSplit("127.0.0.1", port)
    reader.handle_splits_changes(SplitsAddition((split,)))
    return reader, split


def fetched(reader):
    """Return the split of the next batch, and the splits that have ended before it."""
    while True:
        records = reader.fetch()
        split_id = records.next_split()
        if split_id is not None or records.finished_splits():
            return split_id, records.finished_splits()


class TestContract(SourceTestBase):
    """The contract of sources, with a server that starts its stream anew for each connection."""

    num_splits = 1
    batches = tuple(batch(n * 3) for n in range(10))

    # A socket cannot be read again from a checkpoint, so these tests do not apply.
    test_a_restored_checkpoint_gives_exactly_the_rest = None
    test_a_checkpoint_of_a_restored_job_is_a_checkpoint = None

    @pytest.fixture(autouse=True)
    def server(self):
        with Server(*[stream(*self.batches)] * 100) as server:
            self.port = server.port
            yield

    def create_source(self):
        return SocketSource("127.0.0.1", self.port, SCHEMA, reconnect=False)

    def expected_records(self):
        return pa.Table.from_batches(self.batches)


def test_a_stream_to_its_end():
    with Server(stream(*[batch(n * 3) for n in range(20)])) as server:
        source = SocketSource("127.0.0.1", server.port, SCHEMA, reconnect=False)
        assert source.boundedness is Boundedness.BOUNDED
        with read(source, 3) as records:
            assert ids(records) == list(range(60))
        assert server.errors == []


def test_an_empty_stream():
    with Server(stream()) as server:
        source = SocketSource("127.0.0.1", server.port, SCHEMA, reconnect=False)
        assert list(read(source)) == []


def test_it_connects_again_when_a_stream_ends_or_breaks():
    with Server(stream(batch(0)), then_break(batch(3)), stream(batch(6))) as server:
        source = SocketSource("127.0.0.1", server.port, SCHEMA, retry_interval="1ms")
        assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
        with read(source) as records:
            assert ids(next(records) for _ in range(3)) == list(range(9))


def test_a_broken_stream_is_an_error_without_reconnecting():
    with Server(then_break(batch(0))) as server:
        source = SocketSource("127.0.0.1", server.port, SCHEMA, reconnect=False)
        with (
            read(source) as records,
            pytest.raises(SourceError, match=f"tcp://127.0.0.1:{server.port} broke"),
        ):
            ids(records)


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    source = SocketSource("127.0.0.1", port, SCHEMA, reconnect=False)
    with pytest.raises(SourceError, match=f"tcp://127.0.0.1:{port} broke"):
        list(read(source))


def test_a_stream_of_another_schema():
    with Server(stream(batch(0))) as server:
        other = pa.schema([("id", pa.int32())])
        source = SocketSource("127.0.0.1", server.port, other)
        with pytest.raises(SchemaMismatchError, match="has another schema"):
            list(read(source))


@pytest.mark.parametrize("garbage", [b"", b"\xff\xff\xff\xff\x10"])
def test_a_server_that_says_nothing_more_does_not_hold_a_close(garbage):
    with Server(then_hang(batch(0), garbage=garbage)) as server:
        source = SocketSource("127.0.0.1", server.port, SCHEMA)
        with read(source, 2) as records:
            assert ids([next(records)]) == [0, 1, 2]


def test_a_fetch_that_finds_nothing_returns_soon():
    with Server(then_hang(batch(0))) as server:
        reader, split = split_reader(server.port)
        assert fetched(reader) == (split.split_id, set())
        assert reader.fetch().next_split() is None
        reader.wake_up()
        assert reader.fetch().next_split() is None
        reader.close()


def test_a_paused_split_gives_nothing():
    with Server(stream(batch(0))) as server:
        reader, split = split_reader(server.port, reconnect=False)
        reader.pause_or_resume_splits([split], [])
        reader.wake_up()
        assert reader.fetch().next_split() is None
        reader.pause_or_resume_splits([], [split])
        assert fetched(reader) == (split.split_id, set())
        assert fetched(reader) == (None, {split.split_id})
        reader.close()


def test_the_server_waits_when_nobody_reads():
    count = 2000
    wide = pa.record_batch([range(5000), ["x" * 20] * 5000], schema=SCHEMA)
    sent = []

    def serve(_, file):
        with ipc.new_stream(file, SCHEMA) as writer:
            for number in range(count):
                writer.write_batch(wide)
                sent.append(number)

    with Server(serve) as server:
        with read(SocketSource("127.0.0.1", server.port, SCHEMA)) as records:
            next(records)
            before = -1
            while before != len(sent):  # until the server sends nothing for a while
                before = len(sent)
                time.sleep(0.3)
        assert before < count


def test_one_reader_has_the_connection():
    source = SocketSource("localhost", 1, SCHEMA)
    context = FakeEnumeratorContext(3)
    enumerator = source.create_enumerator(context)
    enumerator.start()
    for subtask in range(3):
        enumerator.handle_split_request(subtask, None)
    assert context.assigned == {0: [SocketSplit("localhost", 1)], 1: [], 2: []}
    assert context.told_no_more == [1, 2]
    serializer = source.enumerator_checkpoint_serializer
    state = serializer.deserialize(1, serializer.serialize(enumerator.snapshot_state(1)))
    assert enumerated(source, checkpoint=state) == []
    enumerator.add_splits_back(context.assigned[0], 0)
    enumerator.handle_split_request(0, None)
    assert len(context.assigned[0]) == 2
    assert enumerator.total_splits == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"host": ""}, "host="),
        ({"schema": "id long"}, "schema='id long' is no Arrow schema"),
        ({"port": 0}, "port=0"),
        ({"port": 70_000}, "port=70000"),
        ({"retry_interval": 0}, "retry_interval=0"),
        ({"connect_timeout": "never"}, "connect_timeout='never'"),
    ],
)
def test_what_it_does_not_take(arguments, named):
    with pytest.raises(OptionError, match=named):
        SocketSource(**{"host": "a", "port": 1, "schema": SCHEMA, **arguments})


def test_options_are_texts():
    options = {"host": "a", "port": "7", "schema": "id long, text string", "reconnect": "false"}
    source = SocketSource.from_options(options)
    assert source.schema == SCHEMA
    assert source.name == "SocketSource(a:7)"
    assert source.boundedness is Boundedness.BOUNDED
    for missing in ("host", "port", "schema"):
        with pytest.raises(OptionError, match=f"{missing}=None is not given"):
            SocketSource.from_options({k: v for k, v in options.items() if k != missing})
