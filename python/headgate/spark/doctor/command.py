"""The command ``python -m headgate doctor``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import headgate
from headgate._java import require_java
from headgate.errors import HeadgateError, OptionError, PackageNotFound, SparkNotStarted
from headgate.spark.doctor.findings import Finding, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_DESCRIPTION: Final = """
Examine a cluster before an exchange does: versions, addresses, clocks, limits, disks, memory, TLS, and the rate of each
pair of executors. Give the confs of the application that you plan. Exit code: 0 all is well, 1 warnings, 2 failures.
"""
#: Exit code after Ctrl-C, as of other commands.
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code: 0, 1 or 2 as of a report, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m headgate doctor", description=_DESCRIPTION)
    parser.add_argument("--master", help="of the application; default: the conf spark.master")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a conf of Spark"
    )
    parser.add_argument("--local", action="store_true", help="this machine only, without Spark")
    parser.add_argument("--json", action="store_true", help="print JSON, with a schema_version")
    parser.add_argument(
        "--size", default="100m", help="bytes for each pair of executors, 0 for none; default: 100m"
    )
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="most seconds for all of it; default: 120"
    )
    options = parser.parse_args(arguments)
    confs = dict(conf.partition("=")[::2] for conf in options.conf)
    if wrong := [conf for conf in options.conf if not conf.partition("=")[0] or "=" not in conf]:
        parser.error(f"--conf {wrong[0]} is not NAME=VALUE")
    try:
        report = _report(options, confs)
    except OptionError as error:
        parser.error(error.summary)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    print(json.dumps(report.to_json(), indent=2) if options.json else report)
    return report.exit_code


def _report(options: argparse.Namespace, confs: dict[str, str]) -> Report:
    from headgate.spark.doctor import doctor  # noqa: PLC0415 - a function and a folder
    from headgate.spark.doctor.examination import of_this_machine  # noqa: PLC0415

    if options.local:
        return of_this_machine()
    begin = time.monotonic()
    try:
        session = _session(options.master, confs)
    except HeadgateError as error:
        finding = Finding(error.code, "fail", "spark", error.summary, error.remedy)
        master = options.master or confs.get("spark.master") or "no master"
        return Report(headgate.__version__, master, 0, time.monotonic() - begin, (finding,))
    try:
        return doctor(session, size=options.size, seconds=options.seconds)
    finally:
        session.stop()


def _session(master: str | None, confs: dict[str, str]) -> SparkSession:
    """Start an application.

    Raises:
        JavaNotFound: there is no Java that Spark can use.
        PackageNotFound: pyspark or pyarrow is missing.
        SparkNotStarted: Spark says why.
    """
    if missing := [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]:
        summary = f"the doctor needs packages that are not installed: {', '.join(missing)}"
        raise PackageNotFound(summary, remedy='pip install "headgate[spark]" · --local')
    from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark only where Spark is

    require_java()
    # PYSPARK_SUBMIT_ARGS and spark-defaults.conf may name the master too.
    builder: Any = SparkSession.builder.appName("headgate doctor")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in {**quiet, **confs}.items():
        builder = builder.config(name, value)
    if master:
        builder = builder.master(master)
    chosen = master or confs.get("spark.master") or ""
    if chosen.startswith("local") and "spark.pyspark.python" not in confs:
        # Spark would take the python3 of the PATH, which in an environment that is not activated is another one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise SparkNotStarted(
            f"Spark did not start the application: {_message(error)}", asked=master or ""
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _message(error: Exception) -> str:
    """Return what a Java exception says, or the first line of another error."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    return next(iter(text.strip().splitlines()), type(error).__name__)
