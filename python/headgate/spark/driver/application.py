"""One coordinator per Spark application, from its first exchange to its end."""

from __future__ import annotations

import logging
import os
import threading
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import OPTIONS
from headgate.control.place import Place
from headgate.errors import OptionError
from headgate.spark.confs import context_confs
from headgate.spark.driver.blocks import close_to_others
from headgate.spark.driver.interrupts import cancel_on_ctrl_c
from headgate.spark.driver.kept_hosts import KeptHosts
from headgate.spark.driver.lifetimes import PlanLifetimes
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.scheduler.jobs import Jobs, Plan
from headgate.spark.driver.scheduler.outputs import give_up
from headgate.spark.driver.scheduler.shares import profiles
from headgate.spark.driver.scheduler.slots import local_attempts
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark import SparkContext

    from headgate._native import ControlKey
    from headgate._options import Options
    from headgate.spark.driver.kept.places import PlacesOfExchange
    from headgate.spark.driver.runs.formation import ExchangeFacts
    from headgate.spark.driver.scheduler.shares import Shares

_LOG: Final = logging.getLogger("headgate.spark")
_LOCK: Final = threading.Lock()
_running: dict[str, Application] = {}


class Application:
    """The coordinator of one application, and its exchanges.

    It knows an exchange, and its key, until the plan is garbage and the last run is over.

    Args:
        context: the application.
    """

    def __init__(self, context: SparkContext) -> None:
        conf = context_confs(context)
        self.host: str = conf.get("spark.driver.host") or "127.0.0.1"
        self._keys: dict[bytes, ControlKey] = {}
        self._plans: dict[bytes, Plan] = {}
        self._kept = KeptHosts(partial(give_up, context))
        self._lifetimes = PlanLifetimes(context)
        #: What the hosts of kept exchanges and their consumers share.
        self.data_id, self.data_secret = os.urandom(16), os.urandom(32)
        #: The options of TLS of these hosts, from the first kept exchange on.
        self._tls: dict[str, Any] | None = None
        self._jobs: Jobs
        self._id = context.applicationId
        self.bind_host: str = conf.get("spark.driver.bindAddress") or self.host

        def make_side(server: Server) -> Jobs:
            self._jobs = Jobs(
                server, context, self._plans, self._withdrawn, self._lifetimes.look, self._gone
            )
            return self._jobs

        retries = _retries(context)
        self._server = Server(
            self.bind_host, self._keys.get, make_side, retries, Timing(), self._kept
        )
        self.port = self._server.port
        self._context = context
        self._server.start()
        self._jobs.start()
        cancel_on_ctrl_c(context)
        if conf.get("spark.io.encryption.enabled", "false") != "true":
            close_to_others(context)
        if conf.get("spark.network.crypto.enabled", "false") != "true":
            _LOG.info(
                "secrets of exchanges travel in Spark's closures; its own RPC is not encrypted"
            )

    @cached_property
    def shares(self) -> Shares:
        """The resource profiles of resident consumers and their producers."""
        return profiles(self._context)

    @property
    def is_alive(self) -> bool:
        """True while its coordinator runs."""
        return self._server.is_alive

    def place(self, exchange_id: bytes, options: Options) -> Place:
        """Return where the tasks of a new exchange find this coordinator, with a secret of its own.

        Args:
            exchange_id: 16 bytes.
            options: of the exchange.
        """
        return Place(
            host=self.host,
            port=self.port,
            exchange_id=exchange_id,
            secret=os.urandom(32),
            timeout=options["consumer_timeout"],
            heartbeat_timeout=options["heartbeat_timeout"],
            tls=options["tls"] == "require",
        )

    def register(self, place: Place, facts: ExchangeFacts, plan: Plan, part: Any) -> None:
        """Register an exchange, before any of its tasks can run.

        Args:
            place: where its tasks find this coordinator.
            facts: about it.
            plan: how to start its producers.
            part: a part in the JVM of the plan of its consumers, see :meth:`PlanLifetimes.add`.
        """
        self._plans[place.exchange_id] = plan
        self._admit(place, facts)
        self._lifetimes.add(part, lambda: self._withdraw(place.exchange_id))

    def register_kept(self, place: Place, facts: ExchangeFacts, places: PlacesOfExchange) -> None:
        """Register what a kept exchange keeps, whose consumers ask for the PLACES of its producers.

        :meth:`live_with` says how long.
        """
        self._kept.register(place.exchange_id, places)
        self._admit(place, facts)

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
                remedy=f"the same {other} in all calls, by the conf {OPTIONS[other].conf} · "
                'mode="pipelined"',
            )

    def live_with(self, part: Any, exchange_ids: Collection[bytes]) -> None:
        """Forget kept exchanges once a part in the JVM of the plan of their consumers is garbage."""

        def withdraw() -> None:
            for exchange_id in exchange_ids:
                self._withdraw(exchange_id)

        if exchange_ids:
            self._lifetimes.add(part, withdraw)

    def _admit(self, place: Place, facts: ExchangeFacts) -> None:
        """Let tasks that know the secret of an exchange connect."""
        self._server.coordinator.exchanges[place.exchange_id] = facts
        self._keys[place.exchange_id] = place.key()

    def _withdraw(self, exchange_id: bytes) -> None:
        self._server.post(lambda: self._server.coordinator.withdraw(exchange_id))

    def _withdrawn(self, exchange_id: bytes) -> None:
        """Forget an exchange that the coordinator has forgotten: its secret opens nothing any more."""
        self._keys.pop(exchange_id, None)
        self._plans.pop(exchange_id, None)
        self._kept.forget(exchange_id)

    def _gone(self) -> None:
        with _LOCK:
            _running.pop(self._id, None)


def _retries(context: SparkContext) -> Retries:
    """Return how often Spark tries a task: once in ``local[n]``, m times in ``local[n,m]``."""
    failures = int(context_confs(context).get("spark.task.maxFailures") or 4)
    local = local_attempts(context.master or "")
    return Retries(failures if local is None else local, failures)


def of(context: SparkContext) -> Application:
    """Return the application's coordinator; start it if there is none."""
    with _LOCK:
        known = _running.get(context.applicationId)
        if known is None or not known.is_alive:
            known = _running[context.applicationId] = Application(context)
        return known
