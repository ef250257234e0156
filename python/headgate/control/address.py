"""The address of an exchange's coordinator, and the proof that a task belongs to the exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.control.link import control_key

if TYPE_CHECKING:
    from headgate._native import ControlKey


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The address of an exchange's coordinator, and the secret to authenticate with.

    Attributes:
        host: of the driver.
        port: of the coordinator.
        exchange_id: 16 bytes.
        secret: 32 bytes.
        timeout: seconds for connecting.
        heartbeat_timeout: seconds without a heartbeat after which either end counts as lost.
        tls: True if the connections to the driver are encrypted.
    """

    host: str
    port: int
    exchange_id: bytes
    secret: bytes = field(repr=False)
    timeout: float = 60.0
    heartbeat_timeout: float = 10.0
    tls: bool = False

    @property
    def host_port(self) -> str:
        """Host and port, for people."""
        return f"{self.host}:{self.port}"

    def key(self) -> ControlKey:
        """Return the key of the connections to it."""
        return control_key(self.secret, self.exchange_id, tls=self.tls)
