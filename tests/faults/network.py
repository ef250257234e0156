"""Shared by the tests of network faults: a run through a proxy, and its permitted outcomes.

Every run must end in a bounded time, with exactly the right rows or with one clear error, and leave
no resources. A test file that imports `nothing_left` of the data plane checks the latter.
"""

import os
import time

import pyarrow as pa
import pyarrow.compute as pc
from tests.data_plane.plane import NUMBERS, Task, assert_same, numbers
from tests.data_plane.test_processes import CONSUME, ENDLESS, PRODUCE, Child, address_of
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import SILENCES

import headgate as hg

#: Programs of the tests of processes, and what runs them.
__all__ = ["CONSUME", "ENDLESS", "PRODUCE", "Child", "address_of"]

errors = hg.errors
#: Permitted errors. A damaged request is never served as another request.
HONEST = (
    errors.ConnectError,
    errors.HandshakeError,
    errors.IntegrityError,
    errors.PeerLostError,
    errors.ProducerFailedError,
    errors.ProtocolError,
    errors.VersionError,
)
SEEDS = int(os.environ.get("HEADGATE_TEST_SEEDS", "40"))
#: Seconds for a run: more than the deadline of a handshake, which ends any damaged one.
LIMIT = 14.0
#: Seconds after which a silent link is cut.
SILENT = 3.0
BATCHES = [numbers(3000, 3000 * turn) for turn in range(20)]
EXPECTED = numbers(60_000)


class Run:
    """A partition with two subpartitions. One consumer reads the first one through a proxy."""

    def __init__(self, environment, fault=None, **options):
        small = {"memory": "1m", "segment_size": "16k", **options}
        self.producer, self.consumer = environment(**small), environment(**small)
        self.partition = self.producer.create_result_partition(2, schema=NUMBERS, wanted=[0, 1])
        address = self.partition.address(0)
        self.proxy = FaultProxy(address.host, address.port, fault)
        self.address = self.proxy.address(address)

    def write(self):
        with hg.RecordWriter(self.partition, selector=lambda b: [0] * len(b)) as writer:
            # This row goes to subpartition 1. The consumer of subpartition 0 must not see it.
            writer._native.emit_to(pa.record_batch({"n": [-1]}), pa.array([1], pa.uint32()))
            writer.flush()
            for batch in BATCHES:
                writer.emit(batch)
        self.partition.wait_consumed(LIMIT)

    def read(self):
        gate = self.consumer.create_input_gate([self.address])
        batches = []
        try:
            for batch in hg.RecordReader(gate):
                assert pc.min(batch["n"]).as_py() >= 0, "a row of another subpartition"
                batches.append(batch)
            return pa.Table.from_batches(batches, NUMBERS)
        finally:
            gate.close()

    def outcome(self, limit=LIMIT, silent_after=None):
        """Return the rows or the consumer's error. The producer must end as well.

        Args:
            limit: seconds for the consumer.
            silent_after: seconds after which the link is cut, for a fault that causes silence.
        """
        writing, reading = Task(self.write), Task(self.read)
        if silent_after is not None:
            until = time.monotonic() + silent_after
            while reading.running and time.monotonic() < until:
                time.sleep(0.005)
            self.proxy.cut()
        read = reading.outcome(limit)
        self.consumer.close()
        self.partition.release_subpartition(1)
        if not isinstance(read, pa.Table):
            # The producer may not know of the failure: the handshake may never have succeeded.
            self.producer.abort("the consumer failed")
        written = writing.outcome(5)
        assert written is None or isinstance(written, hg.HeadgateError), repr(written)
        return read

    def close(self):
        self.producer.close()
        self.consumer.close()
        self.proxy.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def check(environment, fault):
    """Run once with a fault. Return the right rows or one permitted error."""
    print(fault)
    with Run(environment, fault) as run:
        # Dropped bytes leave a frame incomplete, and the consumer waits for the rest in silence.
        silent = fault.kind == "drop" or fault.kind in SILENCES
        outcome = run.outcome(silent_after=SILENT if silent else None)
    if isinstance(outcome, pa.Table):
        assert_same(outcome, EXPECTED)
    else:
        assert isinstance(outcome, HONEST), repr(outcome)
    return outcome
