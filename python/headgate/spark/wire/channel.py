"""The authenticated connection between a worker and the coordinator, without any I/O.

Both ends prove that they know the key of the exchange before anything else is read::

    worker                               coordinator
    HELLO   magic, version, exchange, nonce  ->
                                         <-  CHALLENGE  version, nonce, proof
    PROOF   proof                            ->
    then frames both ways: u32 length, message, 16-byte tag

Behind a HEARTBEAT message there are no more frames, only bytes of any value.

A proof is an HMAC-SHA256 over the whole transcript with a label of its own for each side. The tag of
a frame covers its direction and number, so that frames cannot be altered, dropped or repeated.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import TYPE_CHECKING, Final

from headgate.errors import HandshakeError, ProtocolError, VersionError
from headgate.spark.wire.messages import MAX_MESSAGE, Message, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = 1
_MAGIC: Final = b"HDGC"
_HELLO: Final = struct.Struct(">4sH16s32s")
_CHALLENGE: Final = struct.Struct(">H32s32s")
_PROOF: Final = 32
_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_TAG: Final = 16


def control_key(secret: bytes, exchange_id: bytes) -> bytes:
    """Return the key of an exchange's control connections, 32 bytes."""
    return _mac(secret, b"headgate control v1" + exchange_id)


class Link:
    """One end of a connection: bytes in, messages out, and the other way round.

    Subclasses do the handshake; ``established`` turns true when the peer has proved itself.
    """

    def __init__(self) -> None:
        self.established = False
        self._input = bytearray()
        self._output = bytearray()
        self._session = b""
        self._labels = (b"", b"")
        self._sent = 0
        self._seen = 0
        self._is_heartbeat = False

    @property
    def token(self) -> str:
        """What only the two ends of this connection know of it; once established."""
        return _mac(self._session, b"heartbeat")[:16].hex()

    @property
    def pending(self) -> int:
        """How many bytes wait to be written."""
        return len(self._output)

    def output(self) -> memoryview:
        """Return the bytes to write; tell :meth:`written` how many of them were."""
        return memoryview(bytes(self._output))

    def written(self, count: int) -> None:
        """Forget the first ``count`` bytes of the output."""
        del self._output[:count]

    def send(self, message: Message) -> None:
        """Queue a message; only once established."""
        body = encode(message)
        tag = self._tag(self._labels[0], self._sent, body)
        self._sent += 1
        self._output += _LENGTH.pack(len(body)) + body + tag

    def receive(self, data: bytes) -> list[Message]:
        """Take bytes from the peer, cut anywhere; return the messages that are complete.

        Raises:
            HandshakeError: the peer does not know the key.
            VersionError: the peer speaks another version.
            ProtocolError: what came is no frame, too large, or not what the peer sent.
        """
        self._input += data
        messages: list[Message] = []
        while not self.established:
            if not self._handshake():
                return messages
        while not self._is_heartbeat and (body := self._frame()) is not None:
            messages.append(decode(body))
            self._is_heartbeat = messages[-1].kind == "HEARTBEAT"
        return messages

    def _handshake(self) -> bool:
        raise NotImplementedError

    def _take(self, count: int) -> bytes | None:
        if len(self._input) < count:
            return None
        data = bytes(self._input[:count])
        del self._input[:count]
        return data

    def _frame(self) -> bytes | None:
        if len(self._input) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._input)
        if length > MAX_MESSAGE:
            raise ProtocolError(f"a control frame of {length} bytes, above {MAX_MESSAGE}")
        frame = self._take(_LENGTH.size + length + _TAG)
        if frame is None:
            return None
        body, tag = frame[_LENGTH.size : -_TAG], frame[-_TAG:]
        if not hmac.compare_digest(tag, self._tag(self._labels[1], self._seen, body)):
            raise ProtocolError("a control frame was altered, dropped or repeated on its way")
        self._seen += 1
        return body

    def _tag(self, label: bytes, number: int, body: bytes) -> bytes:
        return _mac(self._session, label + _NUMBER.pack(number) + body)[:_TAG]

    def _establish(self, key: bytes, transcript: bytes, ours: bytes, theirs: bytes) -> None:
        self._session = _mac(key, b"session" + transcript)
        self._labels = (ours, theirs)
        self.established = True


class WorkerLink(Link):
    """The worker's end: it dials and speaks first."""

    def __init__(self, key: bytes, exchange_id: bytes, nonce: bytes | None = None) -> None:
        super().__init__()
        self._key = key
        self._hello = _HELLO.pack(_MAGIC, VERSION, exchange_id, nonce or os.urandom(32))
        self._output += self._hello

    def _handshake(self) -> bool:
        challenge = self._take(_CHALLENGE.size)
        if challenge is None:
            return False
        version, _, proof = _CHALLENGE.unpack(challenge)
        if version != VERSION:
            raise VersionError(
                "worker and driver have different versions of headgate",
                asked=f"control version {VERSION}",
                have=f"the driver speaks {version}",
            )
        transcript = self._hello + challenge[:-_PROOF]
        if not hmac.compare_digest(proof, _mac(self._key, b"coordinator" + transcript)):
            raise HandshakeError("the coordinator could not prove that it belongs to this exchange")
        self._output += _mac(self._key, b"worker" + transcript)
        self._establish(self._key, transcript, b"w", b"c")
        return True


class CoordinatorLink(Link):
    """The coordinator's end: it learns the exchange from the HELLO, and proves itself first.

    Args:
        keys: returns the key of an exchange, or None for an unknown one.
        nonce: 32 fresh bytes; from the operating system when not given.
    """

    def __init__(self, keys: Callable[[bytes], bytes | None], nonce: bytes | None = None) -> None:
        super().__init__()
        self._keys = keys
        self._nonce = nonce or os.urandom(32)
        self._key = b""
        self._transcript = b""
        self.exchange_id = b""

    def _handshake(self) -> bool:
        return self._answer() if not self._transcript else self._verify()

    def _answer(self) -> bool:
        hello = self._take(_HELLO.size)
        if hello is None:
            return False
        magic, version, exchange_id, _ = _HELLO.unpack(hello)
        if magic != _MAGIC:
            raise ProtocolError("not a control connection")
        if version != VERSION:
            self._output += _CHALLENGE.pack(VERSION, self._nonce, bytes(_PROOF))
            raise VersionError(f"a worker speaks control version {version}, not {VERSION}")
        # An unknown exchange gets a key that nobody has: it looks like a wrong secret from outside.
        self._key = self._keys(exchange_id) or os.urandom(32)
        self.exchange_id = exchange_id
        unproved = _CHALLENGE.pack(VERSION, self._nonce, bytes(_PROOF))[:-_PROOF]
        self._transcript = hello + unproved
        self._output += unproved + _mac(self._key, b"coordinator" + self._transcript)
        return True

    def _verify(self) -> bool:
        proof = self._take(_PROOF)
        if proof is None:
            return False
        if not hmac.compare_digest(proof, _mac(self._key, b"worker" + self._transcript)):
            raise HandshakeError("a worker could not prove that it belongs to its exchange")
        self._establish(self._key, self._transcript, b"c", b"w")
        return True


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()
