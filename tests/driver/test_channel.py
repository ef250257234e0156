"""The control connection: both ends prove the exchange's key, and no frame can be tampered with."""

import pytest

from headgate.errors import HandshakeError, HeadgateError, ProtocolError, VersionError
from headgate.spark.wire.channel import CoordinatorLink, WorkerLink, control_key
from headgate.spark.wire.messages import MAX_MESSAGE, Message

EXCHANGE, SECRET = b"e" * 16, b"s" * 32
KEY = control_key(SECRET, EXCHANGE)


def pair(worker_key=KEY, exchange=EXCHANGE, keys=None):
    keys = {EXCHANGE: KEY} if keys is None else keys
    return WorkerLink(worker_key, exchange), CoordinatorLink(keys.get)


def drain(link):
    data = bytes(link.output())
    link.written(len(data))
    return data


def shake(worker, coordinator):
    coordinator.receive(drain(worker))
    worker.receive(drain(coordinator))
    coordinator.receive(drain(worker))


def established():
    worker, coordinator = pair()
    shake(worker, coordinator)
    return worker, coordinator


def test_messages_pass_both_ways_once_both_have_proved_themselves():
    worker, coordinator = established()
    assert worker.established
    assert coordinator.established
    assert coordinator.exchange_id == EXCHANGE
    worker.send(Message("END"))
    worker.send(Message("WAIT"))
    assert [m.kind for m in coordinator.receive(drain(worker))] == ["END", "WAIT"]
    coordinator.send(Message("GO", 3, 0, {"wanted": [1]}))
    assert worker.receive(drain(coordinator)) == [Message("GO", 3, 0, {"wanted": [1]})]


def test_one_byte_at_a_time():
    worker, coordinator = pair()
    got = []
    for sender, receiver in ((worker, coordinator), (coordinator, worker), (worker, coordinator)):
        for byte in drain(sender):
            got += receiver.receive(bytes([byte]))
    worker.send(Message("END"))
    for byte in drain(worker):
        got += coordinator.receive(bytes([byte]))
    assert [m.kind for m in got] == ["END"]


def test_truncated_at_each_byte_nothing_is_established():
    worker, coordinator = pair()
    hello = drain(worker)
    for length in range(len(hello)):
        cut = CoordinatorLink({EXCHANGE: KEY}.get)
        assert cut.receive(hello[:length]) == []
        assert cut.pending == 0
    coordinator.receive(hello)
    challenge = drain(coordinator)
    for length in range(len(challenge)):
        fresh, _ = pair()
        fresh.receive(challenge[:length])
        assert not fresh.established


def test_a_wrong_key_is_refused_by_both():
    worker, coordinator = pair(worker_key=control_key(b"x" * 32, EXCHANGE))
    coordinator.receive(drain(worker))
    with pytest.raises(HandshakeError):
        worker.receive(drain(coordinator))
    # A worker that does not check still cannot get in.
    with pytest.raises(HandshakeError):
        coordinator.receive(b"\0" * 32)
    assert not coordinator.established


def test_another_exchange_with_its_own_key_is_refused():
    other = b"o" * 16
    worker, coordinator = pair(
        exchange=other, keys={EXCHANGE: KEY, other: control_key(b"y", other)}
    )
    coordinator.receive(drain(worker))
    with pytest.raises(HandshakeError):
        worker.receive(drain(coordinator))


def test_an_unknown_exchange_looks_like_a_wrong_key():
    worker, coordinator = pair(exchange=b"u" * 16)
    coordinator.receive(drain(worker))
    challenge = drain(coordinator)
    assert len(challenge) == 66
    with pytest.raises(HandshakeError):
        worker.receive(challenge)


def test_a_recorded_session_cannot_be_played_again():
    worker, coordinator = pair()
    hello = drain(worker)
    coordinator.receive(hello)
    worker.receive(drain(coordinator))
    proof = drain(worker)
    again = CoordinatorLink({EXCHANGE: KEY}.get)
    again.receive(hello)
    with pytest.raises(HandshakeError):
        again.receive(proof)


def test_a_reflected_proof_is_refused():
    worker, coordinator = pair()
    coordinator.receive(drain(worker))
    challenge = drain(coordinator)
    with pytest.raises(HandshakeError):
        coordinator.receive(challenge[-32:])


def test_another_version_is_named():
    worker, coordinator = pair()
    hello = bytearray(drain(worker))
    hello[4:6] = b"\0\x63"
    with pytest.raises(VersionError, match="99"):
        coordinator.receive(bytes(hello))
    fresh, _ = pair()
    with pytest.raises(VersionError, match="different versions"):
        fresh.receive(b"\0\x02" + bytes(64))


def test_garbage_is_no_control_connection():
    with pytest.raises(ProtocolError):
        CoordinatorLink({}.get).receive(b"GET / HTTP/1.1\r\n" + b"x" * 64)


@pytest.mark.parametrize("position", [4, 10, -1, -16])
def test_an_altered_frame_is_refused(position):
    worker, coordinator = established()
    worker.send(Message("SEALED", 1, 0, {"producers": 3}))
    frame = bytearray(drain(worker))
    frame[position] ^= 1
    with pytest.raises(HeadgateError):
        coordinator.receive(bytes(frame))


def test_a_repeated_a_dropped_and_a_reflected_frame_are_refused():
    worker, coordinator = established()
    worker.send(Message("END"))
    frame = drain(worker)
    coordinator.receive(frame)
    with pytest.raises(ProtocolError, match="altered, dropped or repeated"):
        coordinator.receive(frame)
    worker, coordinator = established()
    worker.send(Message("END"))
    drain(worker)
    worker.send(Message("END"))
    with pytest.raises(ProtocolError):
        coordinator.receive(drain(worker))
    worker, coordinator = established()
    coordinator.send(Message("END"))
    with pytest.raises(ProtocolError):
        coordinator.receive(drain(coordinator))


def test_a_length_above_the_limit_is_refused_before_the_body_is_there():
    _, coordinator = established()
    with pytest.raises(ProtocolError, match="above"):
        coordinator.receive((MAX_MESSAGE + 1).to_bytes(4, "big"))


def test_the_key_depends_on_secret_and_exchange():
    assert (
        len({control_key(s, e) for s in (b"a" * 32, b"b" * 32) for e in (b"1" * 16, b"2" * 16)})
        == 4
    )
