"""The jobs of ``docs/cookbook.md``: the blocks of the page are the code that tests and benches run.

Each section has two blocks, one with Headgate and one in plain PySpark. A block starts from DataFrames, by
their names, and leaves its own in ``result``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cookbook.md"

#: Names of the DataFrames from which blocks start.
TABLES = (
    "clicks",
    "documents",
    "trades",
    "quotes",
    "invoices",
    "payments",
    "readings",
    "runs",
    "pages",
    "lines",
)

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """The code of one way to do a job, and the line of the page at which it begins, from 0."""

    code: str
    start: int

    @property
    def lines(self) -> int:
        """Number of lines with code."""
        lines = (line.strip() for line in self.code.splitlines())
        return sum(bool(line) and not line.startswith("#") for line in lines)

    def run(self, table: Callable[[str], DataFrame]) -> DataFrame:
        """Run the block; return its result.

        Args:
            table: returns the DataFrame of a name.
        """
        # Tracebacks show lines of the page. Workers cannot import ``__main__``, so functions are sent by value.
        code = compile("\n" * self.start + self.code, str(PAGE), "exec")
        names = {name: table(name) for name in TABLES if name in code.co_names}
        space = {"__name__": "__main__", **names}
        exec(code, space)
        return space["result"]


@dataclass(frozen=True)
class Job:
    """A section of the page."""

    title: str
    headgate: Block
    pyspark: Block

    @property
    def name(self) -> str:
        """The title as a name, such as ``near_duplicates``."""
        return self.title.lower().replace(" ", "_")


def jobs() -> list[Job]:
    """Return the jobs of the page in its order."""
    text = PAGE.read_text(encoding="utf-8")
    found = list(_SECTION.finditer(text))
    ends = [section.start() for section in found[1:]] + [len(text)]
    made = []
    for section, end in zip(found, ends, strict=True):
        headgate, pyspark = (
            Block(block[1], text.count("\n", 0, block.start(1)))
            for block in _BLOCK.finditer(text, section.end(), end)
        )
        made.append(Job(section[1], headgate, pyspark))
    return made
