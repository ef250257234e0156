"""Write docs/options.md from the table of options; --check only compares it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from headgate._option_table import OPTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"

HEAD = """\
# Options

<!-- Written by scripts/options_page.py from python/headgate/_option_table.py. -->

You can set each option in three ways: as a keyword argument of the calls that its section names, as a conf of the Spark
session, or as an environment variable. An argument overrides the conf, the conf overrides the variable, the variable
overrides the default. `map_schema` can only be an argument. `ShuffleEnvironment` is the exchange without Spark.

Write sizes as in Spark: `"64m"`, `"256k"`, `"1g"`, where k is 1024; a plain number is bytes. Write durations as
`"100ms"`, `"10s"`, `"5m"`; a plain number is seconds. An unknown name, or a value outside its limits, is an
`OptionError` ([HG-1001](../python/headgate/catalogue/pages/HG-1001.md)).

Terms: *producers* are the tasks before an exchange, *consumers* those after it. A *segment* is a block of fixed size
from the pool of a process, a *buffer* is a filled segment, and a *page* is an Arrow record batch in a buffer. A *gate*
is the input of a consumer and has a *channel* per producer. A *partition* is the output of a producer and has a
*subpartition* per consumer; only `num_partitions` means the partitions of the resulting DataFrame. An *event* is a
message between tasks that travels in line with the data. A *slot* is room for one running Spark task.
[Architecture](../ARCHITECTURE.md) has more.
"""

COLUMNS = 118
CALLS = {"environment": "`ShuffleEnvironment`", "exchange": "`exchange`"}


def page() -> str:
    """Return the whole page."""
    sections = []
    for option in OPTIONS.values():
        default = "none" if option.default is None else f"`{option.default}`"
        calls = ", ".join(CALLS[scope] for scope in option.scopes)
        lines = [
            f"default {default}; values: {option.limits}",
            f"an argument of {calls}" + (" only" if option.call_only else ""),
        ]
        if not option.call_only:
            lines.append(f"conf `{option.conf}`, variable `{option.variable}`")
        meaning = textwrap.fill(f"{option.doc} Since {option.since}.", COLUMNS)
        items = "\n".join(f"- {line}" for line in lines)
        sections.append(f"\n## {option.name}\n\n{meaning}\n\n{items}\n")
    return HEAD + "".join(sections)


def main() -> int:
    """Write the page, or compare it with --check; return 1 if it is not current."""
    if "--check" in sys.argv[1:]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print("docs/options.md is not current: run python scripts/options_page.py")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
