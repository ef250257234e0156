"""The control connection: both ends prove that they know the secret, and no frame can be altered."""

import pytest

from headgate.control.link import CoordinatorLink, WorkerLink, control_key
from headgate.control.messages import Message
from headgate.errors import HandshakeError, HeadgateError, ProtocolError, VersionError
from headgate.spark.wire import CODEC

EXCHANGE, SECRET = b"e" * 16, b"s" * 32
KEY = control_key(SECRET, EXCHANGE)
#: Position in a HELLO of the lowest and the highest version.
VERSION = 5


def pair(worker_key=KEY, exchange=EXCHANGE, keys=None):
    keys = {EXCHANGE: KEY} if keys is None else keys
    return WorkerLink(worker_key, exchange, CODEC), CoordinatorLink(keys.get, CODEC)


def drain(link):
    data = bytes(link.output())
    link.written(len(data))
    return data


def shake(worker, coordinator):
    for sender, receiver in ((worker, coordinator), (coordinator, worker)) * 2:
        receiver.receive(drain(sender))


def established():
    worker, coordinator = pair()
    shake(worker, coordinator)
    return worker, coordinator


def test_messages_pass_both_ways_once_both_have_proved_themselves():
    worker, coordinator = established()
    assert worker.established
    assert coordinator.established
    assert coordinator.exchange_id == EXCHANGE
    worker.send(Message("ASK_HOSTS"))
    worker.send(Message("ASK_HOSTS"))
    assert [m.kind for m in coordinator.receive(drain(worker))] == ["ASK_HOSTS", "ASK_HOSTS"]
    message = Message("HOSTS", {"hosts": [], "producers": [[1, 77, 0]], "is_last": True})
    coordinator.send(message)
    assert worker.receive(drain(coordinator)) == [message]


def test_one_byte_at_a_time():
    worker, coordinator = pair()
    got = []
    for sender, receiver in ((worker, coordinator), (coordinator, worker)) * 2:
        for byte in drain(sender):
            got += receiver.receive(bytes([byte]))
    worker.send(Message("ASK_HOSTS"))
    for byte in drain(worker):
        got += coordinator.receive(bytes([byte]))
    assert [m.kind for m in got] == ["ASK_HOSTS"]


def test_another_exchange_with_its_own_key_is_refused():
    other = b"o" * 16
    worker, coordinator = pair(
        exchange=other, keys={EXCHANGE: KEY, other: control_key(b"y" * 32, other)}
    )
    coordinator.receive(drain(worker))
    with pytest.raises(HandshakeError):
        worker.receive(drain(coordinator))


def test_an_unknown_exchange_looks_like_a_wrong_key():
    worker, coordinator = pair(exchange=b"u" * 16)
    coordinator.receive(drain(worker))
    challenge = drain(coordinator)
    assert len(challenge) == 91
    with pytest.raises(HandshakeError):
        worker.receive(challenge)


def test_another_version_is_named():
    worker, coordinator = pair()
    hello = bytearray(drain(worker))
    hello[VERSION : VERSION + 4] = b"\0\x63" * 2
    with pytest.raises(VersionError, match="99") as caught:
        coordinator.receive(bytes(hello))
    assert "different versions" in str(caught.value)
    with pytest.raises(VersionError, match="99"):
        worker.receive(b"HDGT\x02\0\x63" + bytes(84))
    rejected, _ = pair()
    with pytest.raises(VersionError, match="different versions"):
        rejected.receive(b"HDGT\x05\x01" + b"\0\x63" * 2)


@pytest.mark.parametrize("position", [4, 10, -1, -16])
def test_an_altered_frame_is_refused(position):
    worker, coordinator = established()
    worker.send(Message("HOST_LOST", {"process": "ab" * 16}))
    frame = bytearray(drain(worker))
    frame[position] ^= 1
    with pytest.raises(HeadgateError):
        coordinator.receive(bytes(frame))


def test_a_repeated_a_dropped_and_a_reflected_frame_are_refused():
    worker, coordinator = established()
    worker.send(Message("ASK_HOSTS"))
    frame = drain(worker)
    coordinator.receive(frame)
    with pytest.raises(ProtocolError, match="altered, dropped or repeated"):
        coordinator.receive(frame)
    worker, coordinator = established()
    worker.send(Message("ASK_HOSTS"))
    drain(worker)
    worker.send(Message("ASK_HOSTS"))
    with pytest.raises(ProtocolError):
        coordinator.receive(drain(worker))
    worker, coordinator = established()
    coordinator.send(Message("ASK_HOSTS"))
    with pytest.raises(ProtocolError):
        coordinator.receive(drain(coordinator))


def test_a_length_above_the_limit_is_refused_before_the_body_is_there():
    _, coordinator = established()
    with pytest.raises(ProtocolError, match="above"):
        coordinator.receive((CODEC.max_message + 1).to_bytes(4, "big"))


def test_the_key_depends_on_secret_and_exchange():
    assert (
        len({control_key(s, e) for s in (b"a" * 32, b"b" * 32) for e in (b"1" * 16, b"2" * 16)})
        == 4
    )
