"""The Python blocks of README.md, each run by itself as a stranger would run it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = 300
#: Variables that could give a block packages that its environment does not have.
_REMOVED = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"}


@dataclass(frozen=True)
class Block:
    """One Python block, and the text block after it, which is its output."""

    code: str
    output: str | None


def blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page; a text block that follows one is its output."""
    fences = [(kind, body) for kind, body in _FENCE.findall(text) if kind in {"python", "text"}]
    found = []
    for place, (kind, body) in enumerate(fences):
        if kind == "python":
            after = fences[place + 1] if place + 1 < len(fences) else ("", "")
            found.append(Block(body, after[1] if after[0] == "text" else None))
    return found


def run(code: str, python: Path, folder: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a folder as in an activated environment.

    The interpreter's folder comes first in the PATH, so that Spark's workers use the same packages.
    This repository is not on the path.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _REMOVED}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return subprocess.run(
        [python, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        cwd=folder,
        env=environment,
    )


def wrong_with(block: Block, python: Path, times: int = 2) -> list[str]:
    """Run a block several times in one new folder; return the failures."""
    name = block.code.strip().splitlines()[-1]
    wrong = []
    with tempfile.TemporaryDirectory(prefix="headgate-readme-") as folder:
        for number in range(1, times + 1):
            done = run(block.code, python, folder)
            if done.returncode != 0:
                wrong.append(f"run {number} of the block that ends {name!r}:\n{done.stderr}")
            elif block.output is not None and block.output.strip() not in done.stdout:
                wrong.append(f"run {number} of the block that ends {name!r} prints:\n{done.stdout}")
    return wrong
