"""``python -m headgate report run.json -o report.html``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.observe.report.files import read, write

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Make a page of a report in JSON; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate report",
        description="Make a page of what headgate.spark.report() wrote into a JSON file.",
    )
    parser.add_argument("state", metavar="run.json", help="the JSON file")
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="report.html", help="the page to write"
    )
    options = parser.parse_args(arguments)
    try:
        place = write(read(options.state), options.output)
    except (HeadgateError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(place)
    return 0
