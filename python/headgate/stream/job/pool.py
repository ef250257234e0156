"""The interface of the threads, processes or Spark tasks that run the workers of a streaming job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headgate.control.address import CoordinatorAddress
    from headgate.control.cause import Cause


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and encryption by which workers reach the coordinator.

    Attributes:
        host: name of the coordinator's host for workers.
        listen: address to listen on.
        tls: True if the connections are encrypted.
    """

    host: str = "127.0.0.1"
    listen: str = "127.0.0.1"
    tls: bool = False


class WorkerPool(Protocol):
    """Starts workers, which dial the coordinator. Called on the coordinator's thread; only ``stop`` may block."""

    @property
    def size(self) -> int:
        """Number of workers."""

    @property
    def endpoint(self) -> Endpoint:
        """Address and encryption of the coordinator, for its workers."""

    @property
    def no_resources(self) -> str:
        """The place in which workers of a stage do not get its resources, as a clause; empty if they do."""

    def start(self, number: int, address: CoordinatorAddress) -> None:
        """Start a worker, or start it again after it was lost; one that still runs is ended."""

    def ended(self) -> Mapping[int, Cause]:
        """Return workers that have ended by themselves since the last call, each with the cause.

        A worker that was started again meanwhile is not among them.
        """

    def end_of(self, number: int) -> str:
        """Return how the process of a worker that was lost has ended, as a clause; empty if this process cannot know it.

        It may wait for half a second, as the connections of a process end before the process does.
        """

    def stop(self) -> None:
        """End workers that do not end by themselves. Called once, from any thread."""
