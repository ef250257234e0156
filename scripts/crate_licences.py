"""Collects the licences of the crates that the native module is linked from, for the wheel: most ask to be copied with it.

Decision: ADR 0006.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: In the folder "licenses" of a wheel's metadata.
NAME = "THIRD-PARTY.txt"
_FILE = re.compile(r"(?i)(licen[cs]e|copying|copyright|notice)")
_LINE = "=" * 100
_HEAD = """The native module of Headgate is linked from the crates below. Each text is from the package of the crates above it.
The list of the crates, with their licences as SPDX expressions, is in the folder sboms beside this one.
"""


def linked() -> set[str]:
    """Return the crates that the native module is made of, by name and version, but the module's own."""
    command = [
        "cargo",
        "tree",
        "--locked",
        "--package",
        "headgate-bindings",
        "--edges",
        "normal,no-proc-macro",
    ]
    tree = subprocess.run(
        [*command, "--prefix", "none", "--format", "{p}"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    crates = {" ".join(line.split()[:2]).replace(" v", " ") for line in tree.splitlines()}
    return {crate for crate in crates if not crate.startswith("headgate-bindings ")}


def packages() -> dict[str, dict[str, Any]]:
    """Return what cargo says of each crate of others, by name and version."""
    said = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    ).stdout
    known = json.loads(said)["packages"]
    return {f"{crate['name']} {crate['version']}": crate for crate in known if crate["source"]}


def texts(crates: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return each text of a licence or notice with the crates that have it; those without any have the text ""."""
    found: dict[str, list[str]] = {}
    for name, crate in sorted(crates.items()):
        folder = Path(crate["manifest_path"]).parent
        files = [file for file in folder.iterdir() if file.is_file() and _FILE.match(file.name)]
        said = {file.read_text(encoding="utf-8").strip("\n") for file in files} or {""}
        for text in said:
            found.setdefault(text, []).append(f"{name} ({crate['license']})")
    return found


def joined(found: Mapping[str, list[str]]) -> str:
    """Return one text of all, in the order of the crates."""
    parts = [_HEAD]
    for text, names in sorted(found.items(), key=lambda item: (item[1], item[0])):
        said = text or "No file in the package of this crate has its licence."
        parts.append("\n".join([_LINE, *names, _LINE, "", said, ""]))
    return "\n".join(parts)


def collected() -> str:
    """Return the text for the wheel that is built from this folder."""
    known, crates = packages(), linked()
    return joined(texts({name: crate for name, crate in known.items() if name in crates}))
