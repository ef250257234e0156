"""Heartbeats of a worker with the coordinator, on a second connection to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.control.connection import WorkerConnection
from headgate.control.heartbeat import Heartbeats
from headgate.control.messages import HEARTBEAT, Message
from headgate.errors import CoordinatorError

if TYPE_CHECKING:
    from headgate.control.address import CoordinatorAddress
    from headgate.control.messages import Codec


class DriverHeartbeats:
    """The heartbeats of a worker. Start them before any function of the user runs.

    Args:
        address: of the coordinator.
        codec: of the messages.
        control: the worker's control connection.

    Raises:
        CoordinatorError: the coordinator cannot be reached.
    """

    def __init__(
        self, address: CoordinatorAddress, codec: Codec, control: WorkerConnection
    ) -> None:
        self._address = address
        second = WorkerConnection(address, codec, control)
        with second.sock:
            second.send(Message(HEARTBEAT, {"control": control.token}))
            self._native = Heartbeats()
            try:
                self._driver = self._native.monitor(
                    second.sock, address.heartbeat_timeout, second.tls
                )
            except OSError as error:
                self._native.close()
                raise second.unreachable(error) from error

    def check(self) -> None:
        """Check that the driver is not silent.

        Raises:
            CoordinatorError: it is, for longer than ``heartbeat_timeout``.
        """
        silence = self._native.silence(self._driver)
        if silence is not None:
            raise CoordinatorError(
                f"no heartbeat from the driver for {silence:.0f} s",
                asked=self._address.host_port,
                have=f"heartbeat_timeout={self._address.heartbeat_timeout:g}s",
                remedy="check that the driver runs and its host can be reached · "
                "a larger heartbeat_timeout",
            )

    def close(self) -> None:
        """End the thread and its connection."""
        self._native.close()
