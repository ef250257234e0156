"""Helpers of the data-plane tests: tasks with deadlines, exchanges, comparisons."""

import contextlib
import sys
import threading
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg
from headgate.kept import write_indexes

SECRET = bytes(range(32))
SMALL = {"memory": "8m", "segment_size": "64k"}
#: Seconds after which a call counts as hanging.
PATIENCE = 20.0


class Task:
    """A call in a thread of its own, so that a hang fails one test and stops no others."""

    def __init__(self, call, *args, **kwargs):
        self._value = None
        self._error = None
        self._what = getattr(call, "__qualname__", repr(call))
        self._thread = threading.Thread(target=self._run, args=(call, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, call, args, kwargs):
        try:
            self._value = call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = error
        del call, args, kwargs

    @property
    def running(self):
        return self._thread.is_alive()

    def join(self, timeout=PATIENCE):
        self._thread.join(timeout)
        if self._thread.is_alive():
            frame = sys._current_frames().get(self._thread.ident)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            raise AssertionError(f"{self._what} hangs: not done after {timeout} s\n{stack}")

    def result(self, timeout=PATIENCE):
        self.join(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def error(self, timeout=PATIENCE):
        """Return the exception of the call; a call that succeeded fails the test."""
        self.join(timeout)
        assert self._error is not None, f"{self._what} returned {self._value!r}"
        return self._error

    def outcome(self, timeout=PATIENCE):
        """Return the result of the call, or its exception."""
        self.join(timeout)
        return self._value if self._error is None else self._error


def wait_until(done, timeout=PATIENCE):
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"the condition is false after {timeout} s"
        time.sleep(0.005)


def open_gates(partition, consumer, **options):
    """Open one gate for each subpartition."""
    indexes = range(partition.num_subpartitions)
    return [consumer.create_input_gate([partition.address(i)], **options) for i in indexes]


def open_kept(partition, consumer, file, server):
    """Keep a finished partition, close it, and open one gate for each subpartition.

    The gates read the file, or get it from the environment ``server``.
    """
    kept = {one.subpartition: one for one in partition.keep(file)}
    if server is not None:
        server.serve(partition.id, write_indexes(file, list(kept.values())))
    gates = []
    for index in range(partition.num_subpartitions):
        gate = consumer.create_input_gate(sealed=False, schema=partition._schema)
        if index in kept and server is not None:
            place = (*server.address, partition.id, index, server.process_id)
            gate.add_channel(hg.ChannelAddress(*place))
        elif index in kept:
            gate.add_kept_channel(kept[index])
        gate.seal()
        gates.append(gate)
    partition.close()
    return gates


def drain(gate, **options):
    """Read all records: Arrow batches as one table, others as a list."""
    records = list(hg.RecordReader(gate, **options))
    if options.get("serializer", "arrow") != "arrow":
        return records
    return pa.Table.from_batches(records, options.get("schema") or gate.schema)


def exchange(producer, consumer, write, *, n=1, schema=None, timeout=PATIENCE, **options):
    """Call `write(writer)` in one thread, and read each subpartition in another one.

    Readers of a blocking partition start when it is written. ``options`` are selector, serializer,
    on_event and batch_bytes. Returns a table, or a list of records, for each subpartition.
    """
    reading = {k: options.pop(k) for k in ("on_event", "batch_bytes") if k in options}
    if "serializer" in options:
        reading["serializer"] = options["serializer"]
    partition = producer.create_result_partition(n, schema=schema)

    def produce():
        try:
            with hg.RecordWriter(partition, schema, **options) as writer:
                write(writer)
        except BaseException as error:
            partition.fail(error)  # ends the readers, also if `write` raised
            raise

    writing = Task(produce)
    if partition.kind == "blocking":
        writing.result(timeout)
    keep_as = getattr(producer, "keep_as", None)
    if keep_as is None:
        gates = open_gates(partition, consumer)
    else:
        gates = open_kept(partition, consumer, keep_as(), producer.server)
    readers = [Task(drain, gate, **reading) for gate in gates]
    for reader in readers:
        reader.outcome(timeout)
    # Raise the writer's error first: it is the cause of the readers' errors.
    writing.result(timeout)
    results = [reader.result() for reader in readers]
    if keep_as is None:
        assert Task(partition.wait_consumed, timeout).result()
    for gate in gates:
        gate.close()
    partition.close()
    return results


def emit_all(*records):
    """Return a `write` for :func:`exchange` that emits these records."""

    def write(writer):
        for record in records:
            writer.emit(record)

    return write


def open_files(folder):
    """Return the paths in /proc of this process's open files in a folder, named or not."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # The descriptor that listed the folder is closed by now.
        with contextlib.suppress(FileNotFoundError):
            if str(descriptor.readlink()).startswith(f"{folder}/"):
                found.append(descriptor)
    return found


def bits(array):
    """Return the array with floats as integers, so that NaN equals itself and -0.0 is not 0.0."""
    widths = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if "dictionary" in str(array.type):
        # Each page has its own dictionary, so compare the values.
        return pa.array(array.to_pylist())
    return array.view(widths[array.type]) if array.type in widths else array


def assert_same(got, expected):
    """Assert the same schema and the same rows in order; floats are compared by their bits."""
    got, expected = as_table(got), as_table(expected)
    assert got.schema.equals(expected.schema), f"{got.schema} is not {expected.schema}"
    assert got.num_rows == expected.num_rows
    for name, ours, theirs in zip(got.schema.names, got.columns, expected.columns, strict=True):
        assert bits(ours).equals(bits(theirs)), f"column {name}: {ours} is not {theirs}"
        ours.validate(full=True)


def as_table(data):
    if isinstance(data, pa.Table):
        return data
    return pa.Table.from_batches([data] if isinstance(data, pa.RecordBatch) else data)


def split_by(table, ids, n):
    """Return the rows of each of n subpartitions if row i goes to subpartition ids[i]."""
    return [table.filter(pc.equal(ids, pa.scalar(i, ids.type))) for i in range(n)]


def numbers(count, start=0):
    """Return a batch of one int64 column that counts up."""
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


NUMBERS = pa.schema([("n", pa.int64())])


def fake_address(fake, schema=NUMBERS):
    """Return the address of a fake peer's subpartition; without a schema, of bytes records."""
    described = None if schema is None else schema.serialize().to_pybytes()
    return hg.ChannelAddress(fake.host, fake.port, bytes(16), 0, fake.process, described)
