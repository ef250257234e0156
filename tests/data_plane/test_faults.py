"""A network that flips, cuts and resets: an error or exactly the right rows, and never a hang."""

import contextlib
import os
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from plane import NUMBERS, Task, assert_same, numbers
from proxy import TO_CONSUMER, TO_PRODUCER, Damage, Proxy

import headgate as hg

errors = hg.errors
#: What an accident on the way may look like; no damaged request is taken for another one.
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
#: Above the handshake's deadline, which is what ends a damaged handshake at the latest.
LIMIT = 14.0
BATCHES = [numbers(3000, 3000 * turn) for turn in range(20)]
EXPECTED = numbers(60_000)


class Run:
    """Two subpartitions, of which one consumer reads the first through a proxy."""

    def __init__(self, environment, damage=None):
        small = {"memory": "1m", "segment_size": "16k"}
        self.producer, self.consumer = environment(**small), environment(**small)
        self.partition = self.producer.create_result_partition(2, schema=NUMBERS, wanted=[0, 1])
        address = self.partition.address(0)
        self.proxy = Proxy(address, damage)
        self.address = self.proxy.address(address)

    def write(self):
        with hg.RecordWriter(self.partition, selector=lambda b: [0] * len(b)) as writer:
            # What reaches the consumer of subpartition 0 from here is wrong.
            writer._arrow.emit_to(pa.record_batch({"n": [-1]}), pa.array([1], pa.uint32()))
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

    def outcome(self):
        """Rows, or the consumer's error; the producer must end as well."""
        writing, reading = Task(self.write), Task(self.read)
        read = reading.outcome(LIMIT)
        self.consumer.close()
        self.partition.release_subpartition(1)
        if not isinstance(read, pa.Table):
            # Of a consumer that was never let in the producer knows nothing.
            self.producer.abort("the consumer failed")
        written = writing.outcome(5)
        assert written is None or isinstance(written, hg.HeadgateError), repr(written)
        return read

    def close(self):
        self.producer.close()
        self.consumer.close()
        self.proxy.close()


@pytest.fixture(scope="module")
def lengths():
    """Bytes in each direction of an undamaged run."""
    with contextlib.closing(Run(make)) as run:
        assert_same(run.outcome(), EXPECTED)
        return tuple(run.proxy.passed)


def make(**options):
    return hg.ShuffleEnvironment(secret=bytes(32), **options)


def check(environment, damage):
    print(damage)
    with contextlib.closing(Run(environment, damage)) as run:
        outcome = run.outcome()
    if isinstance(outcome, pa.Table):
        assert_same(outcome, EXPECTED)
    else:
        assert isinstance(outcome, HONEST), repr(outcome)
    return outcome


@pytest.mark.parametrize("direction", [TO_CONSUMER, TO_PRODUCER], ids=["rows", "requests"])
@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_anywhere(environment, lengths, direction, part):
    for seed in range(part, SEEDS, 4):
        chance = random.Random(seed)
        damage = Damage(direction, chance.randrange(lengths[direction]), "flip", seed % 8)
        check(environment, damage)


HANDSHAKE, REQUEST = 86 + 37, 77
SPOTS = {
    "partition": HANDSHAKE + 9,
    "subpartition": HANDSHAKE + 28,
    "channel": HANDSHAKE + 32,
    "generation": HANDSHAKE + 36,
    "initial credit": HANDSHAKE + 40,
    "schema": HANDSHAKE + 41,
    "checksum": HANDSHAKE + 76,
    "length of a credit": HANDSHAKE + REQUEST + 3,
    "magic of a credit": HANDSHAKE + REQUEST + 4,
    "kind of a credit": HANDSHAKE + REQUEST + 8,
    "credit": HANDSHAKE + REQUEST + 12,
    "channel of a credit": HANDSHAKE + REQUEST + 16,
    "checksum of a credit": HANDSHAKE + REQUEST + 20,
}


@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("spot", SPOTS)
def test_a_flipped_bit_in_a_request(environment, spot, bit):
    check(environment, Damage(TO_PRODUCER, SPOTS[spot], "flip", bit))


def test_a_flipped_bit_in_the_rows_is_an_integrity_error(environment, lengths):
    middle = lengths[TO_CONSUMER] // 2
    for bit in range(4):
        outcome = check(environment, Damage(TO_CONSUMER, middle + 1000 * bit, "flip", bit))
        assert isinstance(outcome, (errors.IntegrityError, errors.ProtocolError))


@pytest.mark.parametrize("kind", ["cut", "reset"])
def test_an_end_anywhere(environment, lengths, kind):
    for seed in range(SEEDS // 2):
        chance = random.Random(seed)
        direction = chance.choice([TO_CONSUMER, TO_CONSUMER, TO_PRODUCER])
        offset = chance.randrange(lengths[direction])
        outcome = check(environment, Damage(direction, offset, kind))
        if direction == TO_CONSUMER:
            assert isinstance(outcome, (errors.PeerLostError, errors.HandshakeError)), outcome


def test_no_damage_at_all_through_the_proxy(environment):
    with contextlib.closing(Run(environment)) as run:
        assert_same(run.outcome(), EXPECTED)
