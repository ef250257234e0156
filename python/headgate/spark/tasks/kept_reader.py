"""Reads what producers of kept exchanges left: maps their files, or gets the pages from other hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import headgate as hg
from headgate._closing import Closing
from headgate._directories import local_directories
from headgate.errors import (
    ConnectError,
    HeadgateError,
    IntegrityError,
    PartitionNotFoundError,
    PeerLostError,
    SpillError,
)
from headgate.partition import KeptSubpartition
from headgate.spark.tasks.kept_lifetime import give_up, mark_committed
from headgate.spark.tasks.kept_locations import KeptLocations
from headgate.spark.tasks.start_host import refuses, revive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.address import ChannelAddress
    from headgate.batches import BatchFunction
    from headgate.control.address import CoordinatorAddress
    from headgate.options import EnvironmentOptions
    from headgate.spark.tasks.kept_locations import Row
    from headgate.spark.tasks.start_host import HostPlan
    from headgate.spark.tasks.user_function import Order

#: Errors of a file that is damaged, deleted, or shorter than it was.
_LOST: Final = (IntegrityError, PartitionNotFoundError, SpillError)
#: Errors of a host that cannot be reached.
_UNREACHABLE: Final = (ConnectError, PeerLostError)
#: Seconds in which a host that was killed is sure to be followed, if it is at all; and in which the driver gives it up.
_FOLLOWED: Final = 5.0
_GIVEN_UP: Final = 20.0
#: Seconds in which a host is sure to have noticed that it serves damaged files, and between two looks.
_HOST: Final = 10.0
_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class KeptInput:
    """One input of a kept exchange, as its consumers read it.

    Attributes:
        exchange: name of the exchange and this input.
        schema: of the batches that were kept.
        driver: where to ask for the host of a producer; None if there are no hosts.
        order: in which a function gets the rows; None as they come.
        combine: merges rows of a large partition before a function gets them; None if it gets all.
    """

    exchange: str
    schema: pa.Schema
    driver: CoordinatorAddress | None
    order: Order | None
    combine: BatchFunction | None = None


@dataclass(frozen=True, slots=True)
class KeptReading:
    """How a task reads its inputs.

    Attributes:
        options: options of the task's environment.
        batch_bytes: pages are joined into batches of up to so many bytes; 0 joins none.
        hosts: what consumers and the hosts of other executors share; None if there are no hosts.
        most_remote: channels to other hosts that the pool has segments for at a time, for each input.
    """

    options: EnvironmentOptions
    batch_bytes: int
    hosts: HostPlan | None
    most_remote: int


class KeptReader(Closing):
    """Reads kept subpartitions in an environment of its own, which ends with the block.

    Args:
        reading: how it reads.
        locations: exchange -> the locations of what its producers left, as other readers of the task know them.
    """

    def __init__(
        self, reading: KeptReading, locations: dict[str, KeptLocations] | None = None
    ) -> None:
        self._reading = reading
        self._locations = {} if locations is None else locations
        if reading.hosts is not None:
            revive(reading.hosts, local_directories())
        self._environment = _environment(reading)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    @property
    def peak_bytes(self) -> int:
        """Peak usage of the pool so far."""
        peak: int = self._environment.stats().get("peak_bytes", 0)
        return peak

    @property
    def disk_ms(self) -> int:
        """Ms of waiting for files to be read so far."""
        return self._environment.waits().disk_ns // 1_000_000

    @property
    def link_ms(self) -> int:
        """Ms of waiting for rows from other hosts so far: pages in files are always there."""
        idle: int = self._environment.stats()["metrics"]["task"]["accumulateIdleTimeMs"]
        return idle

    def read(self, source: KeptInput, pieces: Iterable[list[Row]]) -> Iterator[pa.RecordBatch]:
        """Yield the batches for which these rows of producers stand.

        Raises:
            IntegrityError: pages are damaged. Spark makes them again for the next attempt.
            PartitionNotFoundError: their file is gone. Spark makes it again for the next attempt.
            SpillError: their file was cut off. Spark makes it again for the next attempt.
            ConnectError: a host cannot be reached. Spark makes what it served again for the next attempt, if it is gone.
        """
        locations = self._locations.get(source.exchange)
        if locations is None:
            locations = KeptLocations(source.exchange, source.driver)
            self._locations[source.exchange] = locations
        for piece in pieces:
            for group in _groups(map(locations.of, piece), self._reading.most_remote):
                for subpartition in group:
                    if isinstance(subpartition, KeptSubpartition) and subpartition.file is not None:
                        mark_committed(subpartition.file)
                try:
                    yield from self.read_kept(group, source.schema)
                except _LOST:
                    self._give_up_lost(group, source.schema)
                    raise
                except _UNREACHABLE:
                    for address in _hosts(group):
                        if refuses(address.host, address.port, _FOLLOWED):
                            locations.lose(address, _GIVEN_UP)
                    raise

    def _give_up_lost(
        self, group: list[KeptSubpartition | ChannelAddress], schema: pa.Schema
    ) -> None:
        """Give up all of a group that is lost, so that several cost one attempt."""
        for subpartition in group:
            if not isinstance(subpartition, KeptSubpartition):
                self._await_host(subpartition, schema)
            elif self._is_lost(subpartition, schema):
                give_up(subpartition.file or "")

    def _await_host(self, address: ChannelAddress, schema: pa.Schema) -> None:
        """Wait until the host of a damaged subpartition has given it up, so that the next attempt does not ask for it."""
        end = time.monotonic() + _HOST
        while time.monotonic() < end:
            try:
                for _ in self.read_kept([address], schema):
                    pass
            except (IntegrityError, SpillError):
                time.sleep(_PAUSE)
            except HeadgateError:
                return  # it is served no more, or its host is lost
            else:
                return  # it is not damaged

    def _is_lost(self, subpartition: KeptSubpartition, schema: pa.Schema) -> bool:
        """Return True if a subpartition in a file cannot be read when it is tried once more."""
        if subpartition.file is None:
            return False  # its pages came through Spark's shuffle, which has checksums of its own
        try:
            for _ in self.read_kept([subpartition], schema):
                pass
        except _LOST:
            return True
        return False

    def read_kept(
        self, subpartitions: Iterable[KeptSubpartition | ChannelAddress], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of subpartitions, which are read side by side."""
        gate = self._environment.create_input_gate(sealed=False, schema=schema)
        for subpartition in subpartitions:
            if isinstance(subpartition, KeptSubpartition):
                gate.add_kept_channel(subpartition)
            else:
                gate.add_channel(subpartition)
        gate.seal()
        yield from hg.RecordReader(gate, schema=schema, batch_bytes=self._reading.batch_bytes)
        gate.close()


def _environment(reading: KeptReading) -> hg.ShuffleEnvironment:
    if reading.hosts is None:
        return hg.ShuffleEnvironment(**reading.options)
    options: EnvironmentOptions = {**reading.options, "same_host_link": "off"}
    return hg.ShuffleEnvironment(
        secret=reading.hosts.secret, exchange_id=reading.hosts.application, **options
    )


def _hosts(group: Iterable[KeptSubpartition | ChannelAddress]) -> list[ChannelAddress]:
    """Return an address at each host that a gate reads from."""
    remote = [address for address in group if not isinstance(address, KeptSubpartition)]
    return list({address.process_id: address for address in remote}.values())


def _groups(
    subpartitions: Iterable[KeptSubpartition | ChannelAddress], most: int
) -> Iterator[list[KeptSubpartition | ChannelAddress]]:
    """Yield what one gate reads at a time: at most so many channels to other hosts."""
    group: list[KeptSubpartition | ChannelAddress] = []
    remote = 0
    for subpartition in subpartitions:
        is_remote = not isinstance(subpartition, KeptSubpartition)
        if is_remote and remote == most:
            yield group
            group, remote = [], 0
        group.append(subpartition)
        remote += is_remote
    if group:
        yield group
