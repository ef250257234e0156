"""The command ``python -m headgate top``. Only the screen needs the extra "ui"."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from headgate._text import plain
from headgate.errors import HeadgateError
from headgate.observe._extras import require
from headgate.observe.top import lines
from headgate.observe.top.states import Unreachable, argument_or_environment, states
from headgate.observe.view import view

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code: 1 if there is no state."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate top", description="Show the runs of a driver in the terminal."
    )
    parser.add_argument(
        "source",
        nargs="?",
        metavar="URL|run.json",
        help="link of a live page with its token, or a file; by default the variable HEADGATE_UI",
    )
    parser.add_argument("--once", action="store_true", help="print the state once")
    parser.add_argument("--json", action="store_true", help="print the state once, as JSON")
    parser.add_argument("--ascii", action="store_true", help="print ASCII only, with --once")
    parser.add_argument(
        "--sort", choices=lines.COLUMNS[:-1], default="busy", help="column, with --once"
    )
    parser.add_argument("--filter", default="", help="words that a row must contain, with --once")
    options = parser.parse_args(arguments)
    try:
        ask = states(argument_or_environment(options.source))
        if options.json:
            print(json.dumps(ask()))
        elif options.once:
            text = lines.page(view(ask()), options.sort, options.filter)
            print(text.encode("ascii", "replace").decode() if options.ascii else text)
        else:
            require("python -m headgate top", "ui", "textual")
            from headgate.observe.top.app import Top  # noqa: PLC0415 - an extra

            Top(ask).run()
    except Unreachable as error:
        print(f"no connection to {plain(str(error))}", file=sys.stderr)
        return 1
    except HeadgateError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
