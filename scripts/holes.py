"""Prints how many lines of the product tests reach, and the files with most lines that no test reaches.

holes.py PYTHON.json RUST.json       reports of coverage.py and of `llvm-cov export`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 10


class Lines(NamedTuple):
    """The lines of one file.

    Attributes:
        path: from the root of the repository.
        count: lines that can run.
        missing: lines that no test ran.
    """

    path: str
    count: int
    missing: int


def of_python(report: dict[str, Any]) -> list[Lines]:
    """Return the files of a report of coverage.py."""
    return [
        Lines(path, entry["summary"]["num_statements"], entry["summary"]["missing_lines"])
        for path, entry in report["files"].items()
    ]


def of_rust(report: dict[str, Any], root: Path = ROOT) -> list[Lines]:
    """Return the files of the workspace's crates in a report of llvm-cov, without tests and fuzzers."""
    files = []
    for entry in report["data"][0]["files"]:
        path = Path(entry["filename"])
        if not path.is_relative_to(root):
            continue
        path = path.relative_to(root)
        is_product = path.match("rust_core/*/src/**/*.rs") or path.match("rust_core/*/src/*.rs")
        if is_product and path.parts[1] != "fuzz" and "tests" not in path.parts[3:]:
            lines = entry["summary"]["lines"]
            files.append(Lines(path.as_posix(), lines["count"], lines["count"] - lines["covered"]))
    return files


def text(title: str, files: list[Lines]) -> str:
    """Return the sum of the files, and those with most missing lines."""
    count = sum(lines.count for lines in files)
    missing = sum(lines.missing for lines in files)
    reached = 100 * (count - missing) / count if count else 0
    head = f"{title}: {count - missing:,} of {count:,} lines are reached, {reached:.1f} %"
    largest = sorted(files, key=lambda lines: (-lines.missing, lines.path))[:SHOWN]
    return "\n".join(
        [head, *(f"  {hole.missing:5} of {hole.count:5}  {hole.path}" for hole in largest)]
    )


def main() -> int:
    """Print the holes of both reports that the command line names."""
    python, rust = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:])
    print(text("Python", of_python(python)), text("Rust", of_rust(rust)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
