"""The relay passes all bytes on, apart from the damage that was asked for."""

import socket
import threading

import pytest
from tests.soak.chaos.relay import Relay


@pytest.fixture
def ends():
    """Yield a connection through a relay: the client's socket, the target's socket, the pair."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(*listener.getsockname())
        near = socket.create_connection(("127.0.0.1", relay.port), 10)
        far, _ = listener.accept()
        far.settimeout(10)
        # The byte arrives only once the relay has recorded the connection.
        near.sendall(b"?")
        assert far.recv(1) == b"?"
        yield near, far, relay.pairs[0]
        near.close()
        far.close()
        relay.close()
    assert not [t for t in threading.enumerate() if t.name == "chaos-relay"]


def receive(sock, count):
    data = b""
    while len(data) < count:
        data += sock.recv(count - len(data))
    return data


def test_bytes_pass_both_ways_and_an_end_is_an_end(ends):
    near, far, pair = ends
    near.sendall(b"x" * 100_000)
    assert receive(far, 100_000) == b"x" * 100_000
    far.sendall(b"y" * 5)
    assert receive(near, 5) == b"yyyyy"
    assert pair.passed == {"up": 100_001, "down": 5}
    far.close()
    assert near.recv(1) == b""


@pytest.mark.parametrize("direction", ["up", "down"])
def test_one_bit_is_flipped_once(ends, direction):
    near, far, pair = ends
    source, sink = (near, far) if direction == "up" else (far, near)
    assert pair.flip(direction, 10, 3)
    source.sendall(bytes(8))
    assert receive(sink, 8) == bytes(8)
    source.sendall(bytes(8))
    assert receive(sink, 8) == bytes([0, 0, 8, 0, 0, 0, 0, 0])
    source.sendall(bytes(8))
    assert receive(sink, 8) == bytes(8)
    assert pair.damaged is not None


def test_a_cut_ends_both_sides(ends):
    near, far, pair = ends
    assert pair.cut("end")
    assert near.recv(1) == b""
    assert far.recv(1) == b""
    assert not pair.is_open
    assert not pair.cut("end")


def test_a_reset_is_a_reset_on_both_sides(ends):
    near, far, pair = ends
    assert pair.cut("reset")
    for sock in (near, far):
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
