"""Facts of a Spark application's exchanges on several hosts, which its driver keeps to the application's end."""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import OPTIONS
from headgate.control.address import CoordinatorAddress
from headgate.errors import OptionError
from headgate.spark.confs import context_confs, is_gone
from headgate.spark.driver.blocks import close_to_others
from headgate.spark.driver.host_lookup import HostLookup, replace_executor
from headgate.spark.driver.interrupts import cancel_on_ctrl_c
from headgate.spark.driver.plan_lifetimes import PlanLifetimes
from headgate.spark.driver.scheduler.shares import share_of_a_core

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

    from headgate._options import Options
    from headgate.spark.driver.kept.hosts import KeptHosts

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two looks at the plans and at the application's end.
_LOOK: Final = 0.5
_LOCK: Final = threading.Lock()
_running: dict[str, Application] = {}


class Application:
    """The control server of one application, and its exchanges.

    It knows an exchange, and its key, until the plan is garbage.

    Args:
        context: the application.
    """

    def __init__(self, context: SparkContext) -> None:
        conf = context_confs(context)
        self.host: str = conf.get("spark.driver.host") or "127.0.0.1"
        self._lifetimes = PlanLifetimes(context)
        #: What the hosts of kept exchanges and their consumers share.
        self.data_id, self.data_secret = os.urandom(16), os.urandom(32)
        #: The options of TLS of these hosts, from the first kept exchange on.
        self._tls: dict[str, Any] | None = None
        self._id = context.applicationId
        self.bind_host: str = conf.get("spark.driver.bindAddress") or self.host
        self._host_lookup = HostLookup(self.bind_host, partial(replace_executor, context))
        self._context = context
        threading.Thread(target=self._watch, name="headgate-spark", daemon=True).start()
        cancel_on_ctrl_c(context)
        if conf.get("spark.io.encryption.enabled", "false") != "true":
            close_to_others(context)
        if conf.get("spark.network.crypto.enabled", "false") != "true":
            _LOG.info(
                "secrets of exchanges travel in Spark's closures; its own RPC is not encrypted"
            )

    @cached_property
    def share(self) -> ResourceProfile:
        """The resource profile of the workers of streaming jobs. Spark takes a second one for a conflict."""
        return share_of_a_core()

    def register(self, exchange: str, hosts: KeptHosts, options: Options) -> CoordinatorAddress:
        """Let the consumers of a kept exchange ask for the hosts of its producers. :meth:`live_with` says how long.

        Args:
            exchange: its name.
            hosts: those of all exchanges.
            options: of the exchange.

        Returns:
            The place where they ask, with a secret of its own.
        """
        address = CoordinatorAddress(
            host=self.host,
            port=self._host_lookup.server.port,
            exchange_id=bytes.fromhex(exchange),
            secret=os.urandom(32),
            timeout=options["consumer_timeout"],
            tls=options["tls"] == "require",
        )
        self._host_lookup.register(address.exchange_id, address.key(), hosts, exchange)
        return address

    def agree_on_tls(self, options: dict[str, Any]) -> None:
        """Take these options of TLS for all hosts of the application, or check that they are the same.

        Raises:
            OptionError: an earlier kept exchange had others.
        """
        with _LOCK:
            if self._tls is None:
                self._tls = options
        other = next((name for name in options if options[name] != self._tls[name]), None)
        if other is not None:
            raise OptionError(
                f"{other}={options[other]!r} differs from that of the application's kept exchanges before",
                have=f"{other}={self._tls[other]!r}: one process per executor serves them all",
                remedy=f"the same {other} in all calls, by the conf {OPTIONS[other].conf}",
            )

    def live_with(self, part: Any, exchange_ids: Collection[bytes]) -> None:
        """Forget kept exchanges once a part in the JVM of the plan of their consumers is garbage."""

        def forget() -> None:
            for exchange_id in exchange_ids:
                self._host_lookup.forget(exchange_id)

        if exchange_ids:
            self._lifetimes.add(part, forget)

    def _watch(self) -> None:
        while not is_gone(self._context):
            try:
                self._lifetimes.look()
            except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                if not is_gone(self._context):
                    _LOG.debug("Spark did not answer: %s", error)
            time.sleep(_LOOK)
        with _LOCK:
            if _running.get(self._id) is self:
                del _running[self._id]
        self._host_lookup.close()


def of(context: SparkContext) -> Application:
    """Return what the driver knows of an application; start its control server if there is none."""
    with _LOCK:
        application = _running.get(context.applicationId)
        if application is None:
            application = _running[context.applicationId] = Application(context)
        return application
