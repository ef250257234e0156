"""The service that tells consumers of kept exchanges which hosts serve the output of producers (ADR 0023).

Consumers also tell it which hosts are gone, so that Spark makes their output again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from headgate.control.logs import log_safely
from headgate.control.server import HANDSHAKE, ControlServer
from headgate.control.thread import ControlThread
from headgate.errors import ProtocolError
from headgate.spark.tasks.start_host import refuses
from headgate.spark.wire import CODEC

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from headgate._native import ControlKey
    from headgate.control.messages import Message
    from headgate.control.server import Peer
    from headgate.spark.driver.kept.hosts import KeptHosts
    from headgate.spark.tasks.start_host import HostAddress

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds without a byte after which a consumer's connection is closed.
IDLE: Final = 10.0


class HostLookup:
    """Answers the consumers of all kept exchanges of an application, on a thread of its own.

    Args:
        bind_host: address to listen on.
        give_up: makes Spark make the output of an executor again, by its id.
        idle: seconds without a byte after which a consumer's connection is closed.
        handshake: seconds for the proof of a connection.

    Attributes:
        server: has the connections.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(
        self,
        bind_host: str,
        give_up: Callable[[str], None],
        *,
        idle: float = IDLE,
        handshake: float = HANDSHAKE,
    ) -> None:
        self._give_up = give_up
        self._keys: dict[bytes, ControlKey] = {}
        self._exchanges: dict[bytes, tuple[KeptHosts, str]] = {}
        #: Connections that were told the hosts.
        self._answered: set[Peer] = set()
        self._lock = threading.Lock()
        #: Hosts that are being given up, so that many consumers of one have it given up once.
        self._lost: set[HostAddress] = set()
        self.server = ControlServer(
            bind_host, self._keys.get, CODEC, self, _LOG, idle=idle, handshake=handshake
        )
        self._thread = ControlThread(self.server, "headgate-hosts")

    def close(self) -> None:
        """End all connections and the thread."""
        self._thread.close()

    def register(self, exchange_id: bytes, key: ControlKey, hosts: KeptHosts, name: str) -> None:
        """Let the consumers of an exchange ask.

        Args:
            exchange_id: 16 bytes.
            key: of the control connections of its consumers.
            hosts: those of all exchanges.
            name: of the exchange.
        """
        self._exchanges[exchange_id] = hosts, name
        self._keys[exchange_id] = key

    def forget(self, exchange_id: bytes) -> None:
        """Drop an exchange, and the hosts of its producers."""
        self._keys.pop(exchange_id, None)
        hosts, name = self._exchanges.pop(exchange_id, (None, ""))
        if hosts is not None:
            hosts.forget(name)

    def on_message(self, peer: Peer, message: Message) -> None:
        """Answer a consumer.

        Raises:
            ProtocolError: the message is none of a consumer's.
        """
        if message.kind == "ASK_HOSTS":
            self._tell(peer)
        elif message.kind == "HOST_LOST":
            self.host_lost(peer.exchange_id, message["process"])
        else:
            raise ProtocolError(f"a {message.kind} message, which a driver only sends")

    def on_lost(self, peer: Peer, error: Exception | None) -> None:
        """Forget a connection."""
        del error
        self._answered.discard(peer)

    def _tell(self, peer: Peer) -> None:
        """Answer once: a consumer could ask more often than it reads."""
        if peer in self._answered:
            raise ProtocolError("a second ASK_HOSTS message of one connection")
        self._answered.add(peer)
        hosts, name = self._exchanges.get(peer.exchange_id, (None, ""))
        for fields in () if hosts is None else hosts.messages(name):
            peer.send("HOSTS", **fields)

    def host_lost(self, exchange_id: bytes, process: str) -> None:
        """Have Spark make again what a host served, in a thread: Spark may take long.

        Afterwards consumers are not told of it any more. Nothing happens if the driver can reach the host.
        """
        hosts, name = self._exchanges.get(exchange_id, (None, ""))
        host = None if hosts is None else hosts.host(name, process)
        if hosts is None or host is None or not host.executor:
            return  # it is given up already, or Spark cannot be told
        with self._lock:
            if host in self._lost:
                return
            self._lost.add(host)
        threading.Thread(
            target=self._lose, args=(hosts, host), name="headgate-give-up", daemon=True
        ).start()

    def _lose(self, hosts: KeptHosts, host: HostAddress) -> None:
        try:
            if not refuses(host.host, host.port, 0.0):
                return
            self._give_up(host.executor)
            hosts.lose(host)
        except Exception as error:  # noqa: BLE001 - py4j raises anything
            message = "the host of executor %s is gone (%s:%d), and its consumers will fail: %s"
            log_safely(_LOG, logging.WARNING, message, host.executor, host.host, host.port, error)
        else:
            message = "the host of executor %s is gone (%s:%d): Spark replaces the executor, and makes its output again"
            log_safely(_LOG, logging.WARNING, message, host.executor, host.host, host.port)
        finally:
            with self._lock:
                self._lost.discard(host)


def replace_executor(context: SparkContext, executor: str) -> None:
    """Make Spark make the output of an executor again, by replacing the executor.

    Less would not do: a stage that goes on has the locations of its input in the memory of all executors, and only a fetch
    that fails makes Spark look for them anew.

    Args:
        context: of the application.
        executor: its id.

    Raises:
        RuntimeError: this master cannot replace an executor.
    """
    if not context._jsc.sc().killAndReplaceExecutor(executor):  # noqa: SLF001 - PySpark has no way to this
        raise RuntimeError("Spark did not replace the executor")
