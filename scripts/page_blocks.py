"""The Python blocks of the pages: a page is one program, and its text blocks are what it prints.

A block is fenced, and its language is its first word. The Python blocks of a page run in order and share their names; a text
block that follows one is its output. ``python not run: REASON`` marks a block that cannot run.

Decision: ADR 0042, in docs/adr.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
#: The README of headgate.stream.
STREAMS = ROOT / "docs" / "streams-readme.md"

_FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n(?= {4}))+")
_SECONDS = 300
#: Printed after each block, so that outputs can be told apart.
_MARK = "----- end of a block -----"
#: Variables that could give a block packages that its environment does not have.
_REMOVED = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"}


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        line: the line of the page at which its code begins, from 0.
        language: the first word after the fence, such as ``python``; empty if there is none.
        mark: the other words after the fence.
        code: its lines.
        output: the text block that follows it, if there is one.
    """

    line: int
    language: str
    mark: str
    code: str
    output: str | None = None

    @property
    def runs(self) -> bool:
        """True if the block is Python that is not marked as one that cannot run."""
        return self.language == "python" and not self.mark

    @property
    def uses_spark(self) -> bool:
        """True if the block needs a Spark session."""
        parts = list(ast.walk(ast.parse(self.code)))
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        modules = {part.module for part in parts if isinstance(part, ast.ImportFrom)}
        return "spark" in names or any(
            module and module.startswith(("pyspark", "headgate.spark")) for module in modules
        )


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page; a text block is also the output of the Python block before it."""
    found: list[Block] = []
    for fence in _FENCE.finditer(text):
        language, _, mark = fence[1].strip().partition(" ")
        line = text.count("\n", 0, fence.start(2))
        if language == "text" and found and found[-1].runs:
            before = found.pop()
            found.append(Block(before.line, before.language, before.mark, before.code, fence[2]))
        found.append(Block(line, language, mark.strip(), fence[2]))
    return found


def indented_python(text: str) -> list[str]:
    """Return the indented blocks of a page that are Python: they would run nowhere."""
    without_fences = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    return [block for block in _INDENTED.findall(without_fences) if _is_python(block)]


def _is_python(block: str) -> bool:
    try:
        parts = ast.parse(re.sub(r"^ {4}", "", block, flags=re.MULTILINE)).body
    except SyntaxError:
        return False
    telling = (ast.Assign, ast.FunctionDef, ast.Import, ast.ImportFrom, ast.With, ast.For)
    return any(
        isinstance(part, telling)
        or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Call))
        for part in parts
    )


def program(found: list[Block]) -> str:
    """Return the blocks that run as one program, each at its lines of the page, so that tracebacks name them."""
    lines: list[str] = []
    for block in found:
        if block.runs:
            lines += [""] * (block.line - len(lines))
            lines += [*block.code.splitlines(), f"print({_MARK!r}, flush=True)"]
    return "\n".join(lines) + "\n"


def wrong_outputs(found: list[Block], said: str) -> list[str]:
    """Compare what a program has printed with the page; return a line for each block that differs."""
    running = [block for block in found if block.runs]
    outputs = said.split(f"{_MARK}\n")[:-1]
    if len(outputs) != len(running):
        return [f"{len(outputs)} of {len(running)} blocks have ended:\n{said}"]
    return [
        f"the block at line {block.line + 1} prints:\n{output}"
        for block, output in zip(running, outputs, strict=True)
        if output.strip() != (block.output or "").strip()
    ]


def activated(python: Path) -> dict[str, str]:
    """Return the variables of an activated environment.

    The interpreter's folder comes first in the PATH, so that Spark's workers use the same packages.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _REMOVED}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def run(code: str, python: Path, folder: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a folder as in an activated environment, with this repository not on the path."""
    return subprocess.run(
        [python, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        cwd=folder,
        env=activated(python),
    )


def wrong_with(found: list[Block], python: Path, times: int = 1) -> list[str]:
    """Run blocks as one program several times in one new folder; return the failures."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="headgate-page-") as folder:
        for number in range(1, times + 1):
            done = run(program(found), python, folder)
            if done.returncode != 0:
                wrong.append(f"run {number}:\n{done.stderr}")
            else:
                wrong += [f"run {number}: {line}" for line in wrong_outputs(found, done.stdout)]
    return wrong
