"""A worker's authenticated connection to the coordinator: a socket and its link, blocking."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.control.heartbeat import keep_alive
from headgate.control.link import WorkerLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate._native import TlsSession
    from headgate.control.address import CoordinatorAddress
    from headgate.control.messages import Codec, Message

_CHUNK: Final = 64 * 1024
#: Seconds of one attempt to connect, and between two of them.
_ATTEMPT: Final = 10.0
_PAUSE: Final = 0.2


class WorkerConnection:
    """An authenticated connection.

    Args:
        address: of the coordinator.
        codec: of the messages.
        beside: another open connection to it, so that connecting is tried once.
        is_wanted: returns False once the connection is of no use any more: then it is not tried again.

    Raises:
        CoordinatorError: the driver could not be reached, or did not answer.
        HandshakeError: the two ends do not share the exchange's secret.
        TlsError: the driver has no TLS, or the connection was altered.
        VersionError: the driver speaks another version.
    """

    def __init__(
        self,
        address: CoordinatorAddress,
        codec: Codec,
        beside: WorkerConnection | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._address = address
        self._early: list[Message] = []
        deadline = time.monotonic() + address.timeout
        while True:
            self._link = WorkerLink(address.key(), address.exchange_id, codec)
            self.sock = self._connect(deadline if beside is None else 0.0, is_wanted)
            try:
                self._shake_hands(deadline)
            except errors.CoordinatorError:
                # Strangers may have crowded it out.
                self.sock.close()
                if time.monotonic() >= deadline or not is_wanted():
                    raise
                time.sleep(_PAUSE)
            except BaseException:
                self.sock.close()
                raise
            else:
                return

    def _shake_hands(self, deadline: float) -> None:
        keep_alive(self.sock, self._address.heartbeat_timeout)
        # A program that holds the GIL may delay the driver's thread.
        self.sock.settimeout(max(_PAUSE, deadline - time.monotonic()))
        self._flush()
        while not self._link.established:
            self._early += self._link.receive(self._read())
            self._flush()
        self.sock.settimeout(None)

    @property
    def token(self) -> str:
        """The token that names this connection on another one of the same worker."""
        return self._link.token

    @property
    def tls(self) -> TlsSession | None:
        """The encryption of the connection, for a thread that takes its socket."""
        return self._link.tls

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            CoordinatorError: the connection is gone.
        """
        self._link.send(message)
        self._flush()

    def receive(self) -> list[Message]:
        """Wait for bytes; return the messages that are complete, maybe none.

        Raises:
            CoordinatorError: the connection is gone.
        """
        early, self._early = self._early, []
        return early or self._link.receive(self._read())

    def is_readable(self, timeout: float) -> bool:
        """Return True once :meth:`receive` would not block, after at most ``timeout`` seconds."""
        return bool(self._early or select.select([self.sock], [], [], timeout)[0])

    def shut_down(self) -> None:
        """Shut the socket down; a thread that reads it wakes up."""
        with contextlib.suppress(OSError):  # the coordinator may have closed it first
            self.sock.shutdown(socket.SHUT_RDWR)

    def unreachable(self, error: OSError | None) -> errors.CoordinatorError:
        """Return the error for a broken connection; ``error`` is None if the driver closed it."""
        return errors.CoordinatorError(
            "the coordinator on the driver cannot be reached",
            asked=self._address.host_port,
            have="it closed the connection" if error is None else str(error),
        )

    def _connect(self, deadline: float, is_wanted: Callable[[], bool]) -> socket.socket:
        while True:
            try:
                return socket.create_connection((self._address.host, self._address.port), _ATTEMPT)
            except OSError as error:
                if time.monotonic() >= deadline or not is_wanted():
                    raise self.unreachable(error) from error
                time.sleep(_PAUSE)

    def _flush(self) -> None:
        try:
            while self._link.pending:
                self._link.written(self.sock.send(self._link.output()))
        except OSError as error:
            raise self.unreachable(error) from error

    def _read(self) -> bytes:
        try:
            data = self.sock.recv(_CHUNK)
        except OSError as error:
            raise self.unreachable(error) from error
        if not data:
            raise self.unreachable(None)
        return data
