"""Peers of this host that lie about shared memory cause errors, never faults or wrong bytes."""

import fcntl
import mmap
import os
import socket
import struct

import pytest
import wire
from plane import NUMBERS, SECRET, Task, fake_address

import headgate as hg

SIZE = 1 << 16
RECORD = b"lent, not sent. " * 200
#: SEAL, SHRINK, GROW, FUTURE_WRITE
SEALS = 1 | 2 | 4 | 16


def memory(size=SIZE, seals=SEALS):
    """Return a descriptor of shared memory that starts with one record."""
    file = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(file, size)
    with mmap.mmap(file, size) as mapped:
        mapped[: 4 + len(RECORD)] = struct.pack(">I", len(RECORD)) + RECORD
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def send_with(link, frame, *files):
    """Send a frame with descriptors, and close the local copies."""
    try:
        socket.send_fds(link, [wire.masked(frame, link.mask)], files)
    finally:
        for file in files:
            os.close(file)


def begin(link):
    """Send a lease; return the local end of it."""
    ours, theirs = socket.socketpair()
    send_with(link, wire.lease(), theirs.detach())
    return ours


def record(channel, sequence=0, **other):
    """Return the frame of a lent buffer with the record; `other` replaces fields."""
    place = {"size": 4 + len(RECORD), "loan": 7, "region": 3, "offset": 0, **other}
    return wire.lent_buffer(channel, sequence, **place)


def played(environment, part, kind=wire.NearProducer, **options):
    """Read from a fake producer; return the records or the error."""
    fake = kind(SECRET, part)
    address = fake_address(fake, schema=None)
    consumer = environment(**options)
    reader = hg.RecordReader(consumer.create_input_gate([address]), serializer="bytes")
    outcome = Task(list, reader).outcome()
    reader.close()
    consumer.close()
    fake.close()
    return outcome


def test_an_honest_peer_gets_each_buffer_back_and_then_its_lease(environment):
    seen = []

    def part(link, channel):
        with begin(link) as lease:
            send_with(link, wire.region(3, SIZE), memory())
            link.send_frames(record(channel), record(channel, 1, loan=8))
            back = {wire.masked(wire.give_back(loan), link.mask) for loan in (7, 8)}
            got = b""
            while not all(frame in got for frame in back):
                got += link.recv(4096)
            seen.append("both")
            size = 2 * (4 + len(RECORD))
            link.send_frames(wire.end(2, size, 2, channel=channel, sequence=2))
            while link.recv(4096):
                pass
            lease.settimeout(10)
            seen.append(lease.recv(1))

    assert played(environment, part) == [RECORD, RECORD]
    assert seen == ["both", b""]


def no_lease(link, channel):
    send_with(link, wire.region(3, SIZE), memory())
    link.send_frames(record(channel))


def too_many_regions(link, channel):
    begin(link).close()
    for number in range(1025):
        send_with(link, wire.region(number, 4096), memory(4096))


def unasked_descriptors(link, channel):
    for _ in range(3):
        send_with(link, wire.frame(12), memory())


def two_at_once(link, channel):
    send_with(link, wire.region(3, SIZE), memory(), memory())


def region(file, size=SIZE):
    def part(link, channel):
        begin(link).close()
        send_with(link, wire.region(3, size), file())
        link.send_frames(record(channel))

    return part


def lent(**wrong):
    def part(link, channel):
        begin(link).close()
        send_with(link, wire.region(3, SIZE), memory())
        link.send_frames(record(channel, **wrong))

    return part


#: One lie of each sort; all others are in rust_core/exchange/src/simulator/hostile.
LIES = {
    "no lease": (no_lease, "without a lease"),
    "too many regions": (too_many_regions, "more than 1024 regions"),
    "memory that others can write": (region(lambda: memory(seals=1 | 2 | 4)), "seals"),
    "less memory than announced": (region(memory, SIZE + 1), "announced"),
    "bytes beyond the region": (lent(offset=SIZE - 100), "at offset 65436"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_connection_and_nothing_else(environment, lie):
    part, words = LIES[lie]
    error = played(environment, part)
    assert isinstance(error, hg.errors.ProtocolError), repr(error)
    assert words in str(error)


@pytest.mark.parametrize("part", [unasked_descriptors, two_at_once])
def test_descriptors_that_nothing_is_said_of_end_the_connection(environment, part):
    error = played(environment, part)
    assert isinstance(error, hg.errors.PeerLostError), repr(error)
    assert "descriptor" in str(error)


def test_nothing_is_lent_over_tcp(environment):
    def part(link, channel):
        link.send_frames(wire.lease())

    error = played(environment, part, wire.Producer)
    assert isinstance(error, hg.errors.ProtocolError), repr(error)
    assert "cannot share any" in str(error)


def connect_near(address, timeout=10.0):
    """Connect as a process of the same host."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout)
    sock.connect(wire.near(address))
    return sock


def test_a_buffer_that_was_not_lent_cannot_be_returned_over_tcp(environment):
    address = environment().create_result_partition(1, schema=NUMBERS).address(0)
    link, _ = wire.consumer(address, SECRET)
    with link:
        link.send_frames(wire.partition_request(address), wire.give_back(0))
        assert wire.is_closed(link)
