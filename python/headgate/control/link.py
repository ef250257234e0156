"""The authenticated connection between a worker and the coordinator, without any I/O.

The handshake is the data plane's, with a key, a role and proofs of its own: see ``docs/protocol.md``.
Both ends prove that they know the exchange's secret before either reads anything else. Frames follow
in both directions::

    u32 length, message, 16-byte tag

The tag of a frame covers its direction and its number, so that no frame can be altered, dropped or
repeated. After a HEARTBEAT message there are no more frames, only bytes of any value.

If the exchange has TLS, all of this is inside of TLS 1.3, and the proofs cover its session. Both ends show
certificates of their own that nobody checks.

Decisions: ADR 0005, ADR 0031.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import struct
from typing import TYPE_CHECKING, Final

from headgate._native import ControlHandshake, ControlKey, TlsEndpoint
from headgate.control.messages import HEARTBEAT
from headgate.errors import HandshakeError, ProtocolError, TlsError, VersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate._native import TlsSession
    from headgate.control.messages import Codec, Message

_LENGTH: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
_TAG: Final = 16
#: Most bytes of output that are copied for one write.
_CHUNK: Final = 64 * 1024
#: First byte of a TLS connection, which no HELLO begins with.
_TLS: Final = b"\x16"


def control_key(secret: bytes, exchange_id: bytes, *, tls: bool = False) -> ControlKey:
    """Return the key of an exchange's control connections.

    Args:
        secret: 32 bytes.
        exchange_id: 16 bytes.
        tls: True if the connections must be encrypted.
    """
    return ControlKey(secret, exchange_id, tls)


@functools.cache
def _endpoint() -> TlsEndpoint:
    """Return this process's certificate; a new one for each connection would cost strangers nothing."""
    return TlsEndpoint()


class ControlLink:
    """One end of a connection: turns bytes into messages and messages into bytes.

    ``established`` turns true once the peer has proved that it knows the secret.

    Args:
        labels: of the direction to the peer and the direction from it, in the tags of frames.
        refusal: the summary of the error for a peer that does not know the secret.
        codec: of the messages.
        tls: what encrypts the connection, if anything does.
    """

    def __init__(
        self,
        labels: tuple[bytes, bytes],
        refusal: str,
        codec: Codec,
        tls: TlsSession | None = None,
    ) -> None:
        self.established = False
        #: The encryption of the connection; the thread that takes the socket for heartbeats takes it along.
        self.tls = tls
        self._handshake: ControlHandshake | None = None
        self._refusal = refusal
        self._codec = codec
        self._input = bytearray()
        self._output = bytearray()
        self._session = b""
        self._labels = labels
        self._sent = 0
        self._received = 0
        self._has_ended = False

    @property
    def token(self) -> str:
        """A name of this connection that only its two ends can know; once established."""
        return _mac(self._session, b"heartbeat")[:16].hex()

    @property
    def pending(self) -> int:
        """Number of bytes to write."""
        return len(self._output)

    def output(self) -> bytes:
        """Return the next bytes to write, at most 64 KiB; report written ones with :meth:`written`."""
        with memoryview(self._output) as view:
            return bytes(view[:_CHUNK])

    def written(self, count: int) -> None:
        """Drop the first ``count`` bytes of the output."""
        del self._output[:count]

    def send(self, message: Message) -> None:
        """Queue a message; only once established."""
        body = self._codec.encode(message)
        tag = self._tag(self._labels[0], self._sent, body)
        self._sent += 1
        self._queue(_LENGTH.pack(len(body)) + body + tag)

    def receive(self, data: bytes) -> list[Message]:
        """Take bytes from the peer, cut anywhere; return the messages that are complete.

        Raises:
            HandshakeError: the peer does not know the secret.
            VersionError: the peer speaks another version.
            ProtocolError: the bytes are no frame, or not the frame that the peer sent; or the frame
                is too large.
            TlsError: the peer has no TLS, or the bytes were altered.
        """
        self._input += self._decrypt(data)
        if not self.established:
            self._shake_hands()
        messages: list[Message] = []
        while self.established and not self._has_ended and (body := self._frame()) is not None:
            messages.append(self._codec.decode(body))
            self._has_ended = messages[-1].kind == HEARTBEAT
        return messages

    def _queue(self, data: bytes) -> None:
        if self.tls is None:
            self._output += data
        else:
            self.tls.send(data)
            self._output += self.tls.take_output()

    def _decrypt(self, data: bytes) -> bytes:
        if self.tls is None:
            return data
        try:
            return self.tls.receive(data)
        finally:
            self._output += self.tls.take_output()

    def _binding(self) -> bytes | None:
        return None if self.tls is None else self.tls.binding

    def _shake_hands(self) -> None:
        try:
            self._advance()
        except HandshakeError as error:
            raise HandshakeError(self._refusal) from error
        except VersionError as error:
            raise VersionError(
                "worker and driver have different versions of headgate", have=error.summary
            ) from error

    def _advance(self) -> None:
        """Give the input to the handshake, and take its output."""
        handshake = self._handshake
        if handshake is None:
            return
        try:
            used = handshake.handle(bytes(self._input))
        finally:
            self._queue(handshake.take_output())
        del self._input[:used]
        if (session := handshake.session) is not None:
            self._session = session
            self.established = True

    def _frame(self) -> bytes | None:
        if len(self._input) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._input)
        if length > self._codec.max_message:
            raise ProtocolError(
                f"a control frame of {length} bytes, above {self._codec.max_message}"
            )
        end = _LENGTH.size + length + _TAG
        if len(self._input) < end:
            return None
        body, tag = bytes(self._input[_LENGTH.size : end - _TAG]), self._input[end - _TAG : end]
        if not hmac.compare_digest(tag, self._tag(self._labels[1], self._received, body)):
            raise ProtocolError("a control frame was altered, dropped or repeated on its way")
        del self._input[:end]
        self._received += 1
        return body

    def _tag(self, label: bytes, number: int, body: bytes) -> bytes:
        return _mac(self._session, label + _NUMBER.pack(number) + body)[:_TAG]


class WorkerLink(ControlLink):
    """The worker's end: it dials and sends the first message of the handshake."""

    def __init__(self, key: ControlKey, exchange_id: bytes, codec: Codec) -> None:
        super().__init__(
            (b"w", b"c"),
            "the coordinator could not prove that it belongs to this exchange",
            codec,
            _endpoint().dial() if key.tls else None,
        )
        self._key = key
        self._exchange_id = exchange_id
        if self.tls is None:
            self._begin()
        else:
            self._output += self.tls.take_output()

    def _advance(self) -> None:
        if self._handshake is None and self._binding() is not None:
            self._begin()
        super()._advance()

    def _begin(self) -> None:
        self._handshake = ControlHandshake.dial(
            self._key, self._exchange_id, self._codec.max_message, self._binding()
        )
        self._queue(self._handshake.take_output())


class CoordinatorLink(ControlLink):
    """The coordinator's end: it learns the exchange from the HELLO, and proves itself first.

    It takes connections with and without TLS, and the latter only of exchanges that do not require it.

    Args:
        keys: returns the key of an exchange, or None for an unknown one.
        codec: of the messages.
    """

    def __init__(self, keys: Callable[[bytes], ControlKey | None], codec: Codec) -> None:
        super().__init__(
            (b"c", b"w"), "a worker could not prove that it belongs to its exchange", codec
        )
        self._keys = keys
        self._has_heard = False
        self.exchange_id = b""
        #: True once the peer has named an exchange that there is.
        self.has_named = False

    def receive(self, data: bytes) -> list[Message]:
        """Take bytes from the worker; see :meth:`ControlLink.receive`."""
        if not self._has_heard and data:
            self._has_heard = True
            if data.startswith(_TLS):
                self.tls = _endpoint().accept()
        return super().receive(data)

    def _advance(self) -> None:
        if self._handshake is None:
            exchange_id = ControlHandshake.requested_exchange(bytes(self._input))
            if exchange_id is None:
                return
            # An unknown exchange gets a random key, so that it looks like a wrong secret.
            exchange_key = self._keys(exchange_id)
            key = exchange_key or control_key(os.urandom(32), exchange_id)
            if key.tls and self.tls is None:
                raise TlsError('a worker of an exchange with tls="require" came without TLS')
            self.exchange_id = exchange_id
            self.has_named = exchange_key is not None
            self._handshake = ControlHandshake.accept(
                key, exchange_id, self._codec.max_message, self._binding()
            )
        super()._advance()


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()
