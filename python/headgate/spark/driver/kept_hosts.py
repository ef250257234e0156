"""The hosts of kept exchanges: consumers ask for them, and tell which are gone (ADR 0023)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from headgate.spark.driver.logs import say
from headgate.spark.tasks.start_host import refuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.spark.driver.kept.places import PlacesOfExchange
    from headgate.spark.tasks.start_host import HostAddress
    from headgate.spark.wire.messages import Message


class KeptHosts:
    """The hosts of all kept exchanges of an application.

    Args:
        give_up: makes Spark make what an executor has left again, by its id.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._places: dict[bytes, PlacesOfExchange] = {}
        self._lock = threading.Lock()
        #: Hosts that are being given up, so that many consumers of one have it given up once.
        self._lost: set[HostAddress] = set()

    def register(self, exchange_id: bytes, places: PlacesOfExchange) -> None:
        """Let the consumers of an exchange ask."""
        self._places[exchange_id] = places

    def forget(self, exchange_id: bytes) -> None:
        """Drop an exchange."""
        kept = self._places.pop(exchange_id, None)
        if kept is not None:
            kept.forget()

    def places(self, exchange_id: bytes) -> list[Message]:
        """Return the PLACES messages of an exchange."""
        kept = self._places.get(exchange_id)
        return [] if kept is None else kept.messages()

    def host_lost(self, exchange_id: bytes, process: str) -> None:
        """Have Spark make again what a host served, in a thread: Spark may take long.

        Afterwards the places have it no more. Nothing happens if the driver can reach the host.
        """
        kept = self._places.get(exchange_id)
        host = None if kept is None else kept.places.host(kept.exchange, process)
        if kept is None or host is None or not host.executor:
            return  # it is given up already, or Spark cannot be told
        with self._lock:
            if host in self._lost:
                return
            self._lost.add(host)
        threading.Thread(
            target=self._lose, args=(kept, host), name="headgate-give-up", daemon=True
        ).start()

    def _lose(self, kept: PlacesOfExchange, host: HostAddress) -> None:
        try:
            if not refuses(host.host, host.port, 0.0):
                return
            self._give_up(host.executor)
            kept.places.lose(host)
        except Exception as error:  # noqa: BLE001 - py4j raises anything
            words = "the host of executor %s is gone (%s:%d), and its consumers will fail: %s"
            say(logging.WARNING, words, host.executor, host.host, host.port, error)
        else:
            words = "the host of executor %s is gone (%s:%d): Spark replaces the executor, and makes its output again"
            say(logging.WARNING, words, host.executor, host.host, host.port)
        finally:
            with self._lock:
                self._lost.discard(host)
