"""An examination: gathers all facts, each step within a time, and asks the checks."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import headgate
from headgate import _options
from headgate._directories import local_directories
from headgate._option_table import CONF_PREFIX, TASK_OPTIONS, TLS_OPTIONS
from headgate.errors import InternalError, OptionError
from headgate.observe.trace import IN_DOCTOR, lines
from headgate.spark.confs import context_confs, session_confs
from headgate.spark.doctor.checks import CHECKS
from headgate.spark.doctor.context import Context, Crew, Facts
from headgate.spark.doctor.findings import Finding, Report
from headgate.spark.doctor.probe import facts
from headgate.spark.encryption import with_tls
from headgate.spark.slots import executors_of, is_dynamic, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from headgate._options import Options
    from headgate.spark.doctor.context import Check
    from headgate.spark.doctor.gather import Executor

#: Parts of the time for executors to register, for their facts, for the pairs, and until the pairs end.
_REGISTER, _FACTS, _PAIRS, _END = 0.15, 0.3, 0.5, 0.95
#: Seconds for a task of the pairs to reach the driver.
_CONNECT: Final = 15.0


def of_this_machine(checks: Sequence[Check] = CHECKS) -> Report:
    """Examine this process and its machine, without Spark."""
    begin = time.monotonic()
    directories = local_directories() or (tempfile.gettempdir(),)
    options = _options.resolve("environment", {})
    context = Context(driver=Facts(facts(directories, {})), options=options)
    findings, seconds = findings_of(context, checks), time.monotonic() - begin
    traces = {"this process": lines(IN_DOCTOR)}
    return Report(headgate.__version__, "this machine", 0, seconds, findings, traces)


def findings_of(context: Context, checks: Sequence[Check]) -> tuple[Finding, ...]:
    """Return the findings of all checks; a check that fails is a finding too."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(context)
        except Exception as error:  # noqa: BLE001 - a check, maybe the user's own
            name = getattr(check, "__name__", "check")
            summary = f"this check failed: {type(error).__name__}: {error}"
            code, remedy = InternalError.code, InternalError.default_remedy
            findings.append(Finding(code, "fail", name, summary, remedy))
    return tuple(findings)


@dataclass(slots=True)
class Examination:
    """An examination of a cluster.

    Attributes:
        session: of the application.
        size: bytes for each pair of executors; 0 for no such step.
        seconds: most seconds for all of it.
        arguments: options of an exchange, as arguments.
        checks: to ask.
        step_findings: findings of the examination itself, when a step fails.
    """

    session: SparkSession
    size: int
    seconds: float
    arguments: Mapping[str, Any]
    checks: Sequence[Check] = CHECKS
    step_findings: list[Finding] = field(default_factory=list)

    def report(self) -> Report:
        """Gather the facts and ask the checks.

        Raises:
            OptionError: an argument is none of an exchange, or outside its limits.
        """
        from headgate.spark.doctor.gather import Executor, probe, registered  # noqa: PLC0415 - pyspark only where Spark is

        begin = time.monotonic()
        spark = self.session.sparkContext
        options = self._options()
        there = registered(spark, self._expected(), begin + _REGISTER * self.seconds)
        missing = max(0, self._expected() - len(there))
        context = Context(
            driver=Facts(facts((), {})),
            missing=missing,
            confs=context_confs(spark),
            options=options,
            master=spark.master or "unknown",
        )
        if not there and (spark.master or "").partition("[")[0] == "local":
            there = [Executor.at("")]
        try:
            # The files of the deployment's certificates, if there are any and they are used.
            has_files = options["tls"] == "require" and options["tls_certificate"]
            tls = {name: str(options[name]) for name in TLS_OPTIONS[1:]} if has_files else {}
            deadline = time.monotonic() + _FACTS * self.seconds
            values, silent, clocks = probe(spark, there, tls, deadline)
            slots = slots_of(spark)
            each = {"slots": slots.each or slots.number}
            answered = [executor.name for executor in there if executor.name in values]
            executors = {name: Facts({**values[name], **each}) for name in answered}
            context = replace(
                context, executors=executors, silent=silent, clocks=clocks, slots=slots.number
            )
            end = min(begin + _END * self.seconds, time.monotonic() + _PAIRS * self.seconds)
            context = self._with_pairs(context, there, options, end)
        except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
            self._note(InternalError.code, "examination", error)
        findings = (*self.step_findings, *findings_of(context, self.checks))
        seconds = time.monotonic() - begin
        traces = {"driver": lines(IN_DOCTOR), **(context.crew.traces if context.crew else {})}
        return Report(headgate.__version__, context.master, len(there), seconds, findings, traces)

    def _note(self, code: str, step: str, error: Exception) -> None:
        summary = f"this step failed: {type(error).__name__}: {error}"
        remedy = "look at the driver's log · run it again"
        self.step_findings.append(Finding(code, "fail", step, summary, remedy))

    def _options(self) -> Options:
        confs = session_confs(self.session, CONF_PREFIX)
        try:
            return with_tls(_options.resolve("exchange", self.arguments, confs), self.session)
        except OptionError as error:
            _options.resolve("exchange", self.arguments)  # raises if it is about an argument
            finding = Finding(error.code, "fail", "options", error.summary, error.remedy)
            self.step_findings.append(finding)
        return with_tls(_options.resolve("exchange", self.arguments, {}), self.session)

    def _expected(self) -> int:
        """Return the number of executors that the configuration asks for; 0 if it does not say."""
        context = self.session.sparkContext
        confs = context_confs(context)
        if is_dynamic(confs) or (context.master or "").startswith("local["):
            return 0
        return executors_of(context.master or "", confs).most or 1

    def _with_pairs(
        self, context: Context, there: Sequence[Executor], options: Options, deadline: float
    ) -> Context:
        """Exchange rows between all pairs of executors that have the driver's headgate."""
        by_name, version = context.executors, headgate.__version__
        same = {name for name, facts in by_name.items() if facts.text("headgate") == version}
        able = [
            executor
            for executor in there
            if executor.name in same and by_name[executor.name].text("pyarrow")
        ]
        slots = context.slots or 0
        if not self.size or not able or (len(able) == 1 and slots < 2):
            return context
        try:
            crew, clocks = self._exchanged(able, options, deadline)
        except OSError as error:
            self._note("HG-3008", "driver", error)
            return context
        return replace(context, crew=crew, clocks={**context.clocks, **clocks})

    def _exchanged(
        self, able: Sequence[Executor], options: Options, deadline: float
    ) -> tuple[Crew, dict[str, tuple[float, float]]]:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        from headgate.spark.doctor.crew import Connections, Invited, examine  # noqa: PLC0415
        from headgate.spark.doctor.gather import Jobs  # noqa: PLC0415
        from headgate.spark.doctor.peer import PeerTask  # noqa: PLC0415
        from headgate.spark.portable import portable  # noqa: PLC0415

        spark = self.session.sparkContext
        confs = context_confs(spark)
        host = confs.get("spark.driver.host") or "127.0.0.1"
        bind_host = confs.get("spark.driver.bindAddress") or host
        is_alone = len(able) == 1
        locations = {
            n: executor.location
            for n, executor in enumerate([able[0], able[0]] if is_alone else able)
        }
        names = {n: executor.name for n, executor in enumerate(able)}
        if is_alone:
            names = {n: f"{able[0].name} process {n + 1}" for n in locations}
        is_encrypted = options["tls"] == "require"
        with (
            Jobs(spark, "headgate doctor: rows between executors") as jobs,
            # Closed first, which ends the tasks.
            Connections(bind_host, host, _CONNECT, tls=is_encrypted) as connections,
        ):
            task = PeerTask(
                connections.address,
                {name: options[name] for name in TASK_OPTIONS},  # type: ignore[arg-type]
                pa.schema([("value", pa.int64())]),
            )
            function = portable(task, "headgate.spark.doctor.peer", "headgate_doctor")
            for number, location in locations.items():
                jobs.start(number, location, function)
            by_id = {executor.id: executor.name for executor in able}
            invited = Invited(names, by_id, is_alone, jobs.errors)
            return examine(connections, invited, self.size, deadline)
