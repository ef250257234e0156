"""The jobs of ``docs/cookbook.md``: the blocks of the page are the code that tests and benches run.

Each section has two blocks, one with Headgate and one in plain PySpark. A block starts from DataFrames, by
their names, and leaves its own in ``result``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

#: Returns the DataFrame of a name.
Table = Callable[[str], DataFrame]

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

    def run(self, table: Table) -> DataFrame:
        """Run the block; return its result.

        Args:
            table: returns the DataFrame of a name.
        """
        return self._executed(self._parsed(), table)["result"]

    def function(self, name: str) -> Callable:
        """Return a function that the block defines, without running the rest of it."""
        parsed = self._parsed()
        kinds = ast.Import, ast.ImportFrom, ast.FunctionDef
        parsed.body = [part for part in parsed.body if isinstance(part, kinds)]
        return self._executed(parsed, None)[name]

    def _parsed(self) -> ast.Module:
        # The blank lines give tracebacks the lines of the page.
        return ast.parse("\n" * self.start + self.code, str(PAGE))

    @staticmethod
    def _executed(parsed: ast.Module, table: Table | None) -> dict[str, object]:
        code = compile(parsed, str(PAGE), "exec")
        # Workers cannot import ``__main__``, so its functions are sent by value.
        space: dict[str, object] = {"__name__": "__main__"}
        if table is not None:
            space |= {name: table(name) for name in TABLES if name in code.co_names}
        exec(code, space)
        return space


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


#: By job, the inputs that Spark groups together, their key, the function that gets them, and what it returns.
COGROUPS = {
    "as_of": (
        "trades",
        "quotes",
        "symbol",
        "as_of",
        "symbol long, at long, paid long, quoted long",
    ),
    "invoices": (
        "invoices",
        "payments",
        "customer",
        "settled",
        "customer long, id long, settled long",
    ),
    "intervals": ("readings", "runs", "machine", "during", "run long, n long, total long"),
}


def by_key(job: Job) -> dict[str, Callable[[Table], DataFrame]]:
    """Return Spark's own call by key with the function of a job, if it has one, by its name."""
    if job.name == "models":
        return {"applyInArrow": lambda table: _applied(job, table)}
    return {"cogroup": lambda table: _cogrouped(job, table)} if job.name in COGROUPS else {}


def _applied(job: Job, table: Table) -> DataFrame:
    fit, schema = job.headgate.function("fit"), "user long, model array<double>"
    columns = to_arrow_schema(StructType.fromDDL(schema))

    def called(clicks):
        import pyarrow as pa

        return pa.Table.from_pylist([fit(clicks)], schema=columns)

    return table("clicks").groupBy("user").applyInArrow(called, schema)


def _cogrouped(job: Job, table: Table) -> DataFrame:
    left, right, key, name, schema = COGROUPS[job.name]
    function, columns = job.headgate.function(name), to_arrow_schema(StructType.fromDDL(schema))

    def called(one, other):
        return function(one, other).to_arrow().select(columns.names).cast(columns)

    groups = table(left).groupBy(key).cogroup(table(right).groupBy(key))
    return groups.applyInArrow(called, schema)
