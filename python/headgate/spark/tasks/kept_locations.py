"""Where a consumer of a kept exchange finds what producers left: on its host, or at others (ADR 0023)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from headgate import ChannelAddress
from headgate._directories import local_directories
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Message
from headgate.errors import IntegrityError, PartitionNotFoundError
from headgate.kept import read_index
from headgate.partition import KeptSubpartition
from headgate.spark.tasks.kept_files import find_indexes, partition_id
from headgate.spark.tasks.kept_lifetime import give_up, mark_committed
from headgate.spark.wire import CODEC

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.address import CoordinatorAddress

    #: A row that a producer returned; see kept_producer.ROWS.
    Row = dict[str, Any]


#: Seconds between two questions to the driver.
_PAUSE: Final = 0.5


class KeptLocations:
    """The locations of what the producers of one exchange left, as one consumer knows them.

    Args:
        exchange: name of the exchange.
        driver: tells which host serves a producer; None if all executors are on one host.
    """

    def __init__(self, exchange: str, driver: CoordinatorAddress | None) -> None:
        self._exchange = exchange
        self._driver = driver
        #: Producer -> attempt -> its indexes on this host; None before a look.
        self._indexes: dict[int, dict[int, Path]] | None = None
        #: Producer -> its attempt, and host, port and process that serve it.
        self._served: dict[int, tuple[int, str, int, bytes]] | None = None

    def of(self, row: Row) -> KeptSubpartition | ChannelAddress:
        """Return the subpartition that a row stands for, or its address at another host.

        Raises:
            PartitionNotFoundError: no executor has it.
            IntegrityError: the file of indexes is damaged. Spark makes it again for the next attempt.
            CoordinatorError: the driver does not answer.
        """
        number, producer = row["subpartition"], row["producer"]
        if row["pages"] is not None:
            return KeptSubpartition(number, 0, row["file"], row["pages"])
        # One look is enough if the driver knows the hosts of all producers: most may be elsewhere.
        if self._indexes is None or (self._driver is None and producer not in self._indexes):
            self._indexes = find_indexes(self._exchange, local_directories())
        cause: PartitionNotFoundError | None = None
        try:
            path = self._on_this_host(producer)
            subpartition = None if path is None else _index(path, number)
            location = subpartition or self._at_another_host(producer, number)
        except PartitionNotFoundError as error:
            location, cause = None, error
        if location is None:
            raise PartitionNotFoundError(
                "no executor has the output of a producer of a kept exchange",
                asked=f"subpartition {number} of producer {producer}",
                have=f"{len(self._indexes)} producers of exchange {self._exchange[:4]} on this host, "
                f"{len(self._served or {})} on others",
                remedy="nothing: Spark makes it again · a larger spark.task.maxFailures, if that ends the job",
            ) from cause
        return location

    def _on_this_host(self, producer: int) -> Path | None:
        """Return the indexes of the attempt that succeeded, if it ran here.

        The copy of a slow task may have left files too. Both are on different hosts, so where all
        executors are on one, the newest attempt is the one that Spark reads.
        """
        attempts = (self._indexes or {}).get(producer, {})
        succeeded = self._all_served().get(producer)
        if succeeded is not None:
            return attempts.get(succeeded[0])
        return attempts[max(attempts)] if attempts else None

    def _all_served(self) -> dict[int, tuple[int, str, int, bytes]]:
        if self._served is None:
            self._served = {} if self._driver is None else _ask(self._driver)
        return self._served

    def _at_another_host(self, producer: int, subpartition: int) -> ChannelAddress | None:
        served = self._all_served()
        if producer not in served:
            return None
        attempt, host, port, process = served[producer]
        name = partition_id(self._exchange, producer, attempt)
        return ChannelAddress(host, port, name, subpartition, process)

    def lose(self, address: ChannelAddress, seconds: float) -> None:
        """Tell the driver that nobody listens at a host's address; return once it has given it up, or time is over.

        Args:
            address: of the host.
            seconds: to wait at most.
        """
        if self._driver is None:
            return
        end = time.monotonic() + seconds
        tell = Message("HOST_LOST", fields={"process": address.process_id.hex()})
        # It answers with its hosts, which have this one until Spark knows that its output is gone.
        while time.monotonic() < end:
            served = _ask(self._driver, tell)
            if all(process != address.process_id for _, _, _, process in served.values()):
                return
            time.sleep(_PAUSE)


def _index(path: Path, subpartition: int) -> KeptSubpartition | None:
    """Return a subpartition by its index in a file; None if it has no rows."""
    try:
        subpartition_there = read_index(path, subpartition)
    except IntegrityError:
        give_up(str(path))
        raise
    mark_committed(str(path))
    return subpartition_there


def _ask(driver: CoordinatorAddress, *before: Message) -> dict[int, tuple[int, str, int, bytes]]:
    """Ask the driver for the hosts of all producers; tell it something before."""
    hosts: list[Any] = []
    producers: list[Any] = []
    is_complete = False
    connection = WorkerConnection(driver, CODEC)
    with connection.sock:
        for message in (*before, Message("ASK_HOSTS")):
            connection.send(message)
        while not is_complete:
            for message in connection.receive():
                hosts += message["hosts"]
                producers += message["producers"]
                is_complete = message["is_last"]
    served = {}
    for producer, attempt, index in producers:
        host, port, process = hosts[index]
        served[producer] = attempt, host, port, bytes.fromhex(process)
    return served
