"""A network that flips bits, cuts and resets causes an error or no harm, never a hang."""

import random

import pytest
from tests.faults.fault import TO_CLIENT, TO_TARGET, Fault
from tests.faults.network import EXPECTED, SEEDS, Run, assert_same, check

import headgate as hg

errors = hg.errors
#: The consumer connects, the producer listens.
TO_CONSUMER, TO_PRODUCER = TO_CLIENT, TO_TARGET


@pytest.fixture(scope="module")
def lengths():
    """Return the bytes in each direction of an undamaged run."""
    with Run(make) as run:
        assert_same(run.outcome(), EXPECTED)
        return run.proxy.passed


def make(**options):
    return hg.ShuffleEnvironment(secret=bytes(32), **options)


@pytest.mark.parametrize("direction", [TO_CONSUMER, TO_PRODUCER], ids=["rows", "requests"])
@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_anywhere(environment, lengths, direction, part):
    for seed in range(part, SEEDS, 4):
        chance = random.Random(seed)
        offset = chance.randrange(lengths[direction])
        check(environment, Fault("flip", direction, offset, bit=seed % 8))


#: Bytes of the handshake to the consumer. A consumer whose connection ends before them dials again.
CHALLENGE, ACCEPT = 91, 5
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
    check(environment, Fault("flip", TO_PRODUCER, SPOTS[spot], bit=bit))


def test_a_flipped_bit_in_the_rows_is_an_integrity_error(environment, lengths):
    middle = lengths[TO_CONSUMER] // 2
    for bit in range(4):
        outcome = check(environment, Fault("flip", TO_CONSUMER, middle + 1000 * bit, bit=bit))
        assert isinstance(outcome, (errors.IntegrityError, errors.ProtocolError))


@pytest.mark.parametrize("kind", ["cut", "reset"])
def test_an_end_anywhere(environment, lengths, kind):
    for seed in range(SEEDS // 2):
        chance = random.Random(seed)
        direction = chance.choice([TO_CONSUMER, TO_CONSUMER, TO_PRODUCER])
        offset = chance.randrange(lengths[direction])
        outcome = check(environment, Fault(kind, direction, offset))
        if direction == TO_CONSUMER and offset >= CHALLENGE + ACCEPT:
            assert isinstance(outcome, (errors.PeerLostError, errors.HandshakeError)), outcome


def test_no_damage_at_all_through_the_proxy(environment):
    with Run(environment) as run:
        assert_same(run.outcome(), EXPECTED)
