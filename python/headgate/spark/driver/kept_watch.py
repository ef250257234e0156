"""Watches the runs of kept exchanges: hears of tasks that start, and has the progress of their runs drawn.

One thread per application, from the first exchange on whose option ``progress`` is not "off". It waits
for datagrams, and asks Spark only while a run goes on.

Decision: ADR 0030.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate._process import memory_group
from headgate.observe.runs import RUNS
from headgate.spark.confs import context_confs, is_gone
from headgate.spark.driver.interrupts import cancel_on_ctrl_c
from headgate.spark.driver.kept.run_record import record_of
from headgate.spark.driver.kept.runs import KeptRuns
from headgate.spark.driver.kept.spark_tasks import SparkTasks
from headgate.spark.driver.plan_lifetimes import PlanLifetimes
from headgate.spark.driver.scheduler.task_sets import failed_tasks, running_tasks, stage_counts
from headgate.spark.progress.display import PERIOD, PROGRESS, DrawnRun
from headgate.spark.progress.surfaces import is_line, is_notebook
from headgate.spark.tasks.notice import MAX_BYTES, TOKEN_BYTES, Listener, notice_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headgate.observe.record import Run
    from headgate.observe.runs import RunKey
    from headgate.spark.driver.kept.runs import KeptRun

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two looks at the application's end.
_IDLE: Final = 1.0
_NO_PROGRESS: Final = "kept exchanges have no line of progress, as the driver cannot listen: %s"
_LOCK: Final = threading.Lock()
_watches: Final[dict[str, KeptWatch]] = {}
_runs: KeptRuns | None = None


class KeptWatch:
    """The watch of one application.

    Args:
        context: the application.
        runs: its kept exchanges.

    Raises:
        OSError: the driver cannot listen.
    """

    def __init__(self, context: SparkContext, runs: KeptRuns) -> None:
        conf = context_confs(context)
        host = conf.get("spark.driver.host") or "127.0.0.1"
        self._context = context
        self._runs = runs
        self._lifetimes = PlanLifetimes(context)
        self._has_sparks_bar = conf.get("spark.ui.showConsoleProgress") == "true"
        #: Exchange -> its option ``progress``.
        self._progress: dict[str, str] = {}
        bind_host = conf.get("spark.driver.bindAddress") or host
        info = socket.getaddrinfo(bind_host, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(*info[:3])
        self._socket.bind(info[4])
        self.listener = Listener(host, self._socket.getsockname()[1], os.urandom(TOKEN_BYTES))
        threading.Thread(target=self._watch, name="headgate-notices", daemon=True).start()

    def add(self, exchange: str, progress: str) -> None:
        """Have the progress of an exchange's runs drawn as its option says."""
        self._progress[exchange] = progress

    def live_with(self, exchange: str, part: Any) -> None:
        """Forget an exchange once a part of its plan is garbage, see :meth:`PlanLifetimes.add`."""
        self._lifetimes.add(part, lambda: self._forget(exchange))

    def _forget(self, exchange: str) -> None:
        self._progress.pop(exchange, None)
        self._runs.forget(exchange)

    def _watch(self) -> None:
        with self._socket:
            live: list[KeptRun] = []
            due = 0.0
            while not is_gone(self._context):
                self._hear(PERIOD if live else _IDLE)
                if time.monotonic() < due:
                    continue
                try:
                    before, live = live, self._runs.live()
                    for key in {_key(run) for run in before} - {_key(run) for run in live}:
                        RUNS.look(key)
                    self._lifetimes.look()
                except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                    if not is_gone(self._context):
                        _LOG.debug("Spark did not answer: %s", error)
                now = time.monotonic()
                PROGRESS.show(self, [self._drawn(run) for run in live], now)
                due = now + PERIOD
            PROGRESS.show(self, [], time.monotonic())
        with _LOCK:
            _watches.pop(self._runs.application, None)

    def _hear(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(MAX_BYTES)
            notice = notice_of(self.listener.token, data)
        except (OSError, ValueError, TypeError):
            return  # nothing came in time, or from somebody else
        if notice is not None:
            self._runs.start(notice)

    def _drawn(self, run: KeptRun) -> DrawnRun:
        progress = self._progress.get(run.exchange, "off")
        if progress == "auto" and self._has_sparks_bar and is_line():
            progress = "off"  # two programs cannot draw the same line
        lists_tasks = progress == "auto" and is_notebook()
        key = _key(run)

        def look(now: float) -> Run:
            return RUNS.saw(key, record_of(self._runs, run, now, lists_tasks=lists_tasks))

        return DrawnRun(key, run.started, progress, look)


def runs_of(session: SparkSession) -> KeptRuns:
    """Return the kept exchanges of the session's application, the only one of this process."""
    global _runs  # noqa: PLW0603 - one per process, as Spark's context
    context = session.sparkContext
    with _LOCK:
        if _runs is None or _runs.application != context.applicationId:
            cancel_on_ctrl_c(context)
            tasks = SparkTasks(partial(running_tasks, context), partial(failed_tasks, context))
            # Spark's processes are children of the driver then, and in its group.
            group = memory_group() if (context.master or "").startswith("local") else None
            _runs = KeptRuns(session, _began, partial(stage_counts, context), tasks, group)
        return _runs


def listener_of(
    session: SparkSession, exchange: str, progress: str, *, tls: str
) -> Listener | None:
    """Return where the tasks of an exchange tell of their start.

    None if nobody wants to know it, or if it has to be encrypted: datagrams are not. Progress then begins with the report of
    the first task that ends.

    Args:
        session: of the exchange.
        exchange: its name.
        progress: its option of this name.
        tls: its option of this name, "require" or "off".
    """
    if progress == "off":
        return None
    runs = runs_of(session)
    with _LOCK:
        watch = _watches.get(runs.application)
        if watch is None:
            try:
                watch = _watches[runs.application] = KeptWatch(session.sparkContext, runs)
            except (OSError, RuntimeError) as error:
                _LOG.warning(_NO_PROGRESS, error)
                return None
    watch.add(exchange, progress)
    return None if tls == "require" else watch.listener


def live_with(session: SparkSession, exchange: str, part: Any) -> None:
    """Forget an exchange whose progress is drawn once a part in the JVM of its plan is garbage.

    Args:
        session: of the exchange.
        exchange: its name.
        part: see :meth:`PlanLifetimes.add`.
    """
    with _LOCK:
        watch = _watches.get(session.sparkContext.applicationId)
    if watch is not None:
        watch.live_with(exchange, part)


def _began(runs: KeptRuns, run: KeptRun) -> None:
    RUNS.began(_key(run), lambda: record_of(runs, run, time.monotonic()))


def _key(run: KeptRun) -> RunKey:
    return "kept", run.exchange, run.number
