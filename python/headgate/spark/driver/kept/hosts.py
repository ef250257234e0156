"""The hosts that serve the output of producers of kept exchanges."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.spark.tasks.start_host import HostAddress

#: Hosts or producers in one message of 64 KiB; a host may have a name of 253 characters.
_IN_A_MESSAGE: Final = 150
_UNKNOWN: Final = -1


class KeptHosts:
    """The hosts that serve the producers of an application's kept exchanges.

    It takes 16 bytes a producer. A DataFrame may be read again at any time, so it forgets an exchange
    only when it is told to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Executor, or a host whose executor is not known -> its number.
        self._numbers: dict[str | HostAddress, int] = {}
        #: By number, the newest host: it serves all that its executor has kept.
        self._hosts: list[HostAddress] = []
        #: Exchange -> for each producer, its newest attempt and the number of its host.
        self._served: dict[str, tuple[array[int], array[int]]] = {}

    def host(self, exchange: str, process: str) -> HostAddress | None:
        """Return the host with this name of a process, if it serves a producer of an exchange."""
        with self._lock:
            _, numbers = self._served.get(exchange, (array("q"), array("q")))
            return next(
                (
                    self._hosts[n]
                    for n in set(numbers) - {_UNKNOWN}
                    if self._hosts[n].process == process
                ),
                None,
            )

    def lose(self, host: HostAddress) -> None:
        """Forget what a host served: it is gone."""
        with self._lock:
            gone = self._numbers.get(host.executor or host, _UNKNOWN)
            for _, numbers in self._served.values():
                for producer, number in enumerate(numbers):
                    if number == gone:
                        numbers[producer] = _UNKNOWN

    def add(self, exchange: str, producer: int, attempt: int, host: HostAddress) -> None:
        """Remember the host of a producer's newest attempt, which is the one that Spark reads."""
        with self._lock:
            attempts, hosts = self._served.setdefault(exchange, (array("q"), array("q")))
            missing = [_UNKNOWN] * (producer + 1 - len(hosts))
            attempts.extend(missing)
            hosts.extend(missing)
            attempts[producer] = attempt
            number = self._numbers.setdefault(host.executor or host, len(self._hosts))
            if number == len(self._hosts):
                self._hosts.append(host)
            self._hosts[number] = host
            hosts[producer] = number

    def forget(self, exchange: str) -> None:
        """Drop an exchange: nobody can read it any more."""
        with self._lock:
            self._served.pop(exchange, None)

    def messages(self, exchange: str) -> list[dict[str, Any]]:
        """Return the fields of the HOSTS messages with the hosts that serve the producers of an exchange."""
        with self._lock:
            newest = list(self._hosts)
            attempts, numbers = self._served.get(exchange, (array("q"), array("q")))
            served = [
                (producer, attempt, number)
                for producer, (attempt, number) in enumerate(zip(attempts, numbers, strict=True))
                if number != _UNKNOWN
            ]
        # The index of a host counts over all messages.
        index = {number: at for at, number in enumerate(dict.fromkeys(n for _, _, n in served))}
        hosts = [[newest[n].host, newest[n].port, newest[n].process] for n in index]
        producers = [[task, attempt, index[number]] for task, attempt, number in served]
        parts = [{"hosts": batch, "producers": []} for batch in _batches(hosts)]
        parts += [{"hosts": [], "producers": batch} for batch in _batches(producers)]
        parts = parts or [{"hosts": [], "producers": []}]
        return [{**part, "is_last": part is parts[-1]} for part in parts]


def _batches(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + _IN_A_MESSAGE] for at in range(0, len(rows), _IN_A_MESSAGE)]
