"""Compares the list of crates (an SBOM) in a wheel with Cargo.lock, and the licence of each with deny.toml and with the texts.

    check_crates.py dist/headgate-*-abi3-*.whl

The exit status is 1 if a crate is missing, has another version, has a licence that deny.toml does not allow, or is not among
the texts of licences in the wheel.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from check_wheel import LICENCES, MAX_BYTES, ROOT, SBOM
from crate_licences import linked


def components(wheel: Path) -> dict[str, dict[str, Any]]:
    """Return the crates that the SBOM of a wheel lists, by name and version."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if SBOM.fullmatch(name)]
        sbom = json.loads(archive.read(member))
    return {f"{part['name']} {part['version']}": part for part in sbom["components"]}


def texts(wheel: Path) -> str:
    """Return the texts of licences in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if LICENCES.fullmatch(name)]
        return archive.read(member).decode()


def licence(component: dict[str, Any]) -> str:
    """Return the SPDX expression of a crate, or an empty text."""
    for entry in component.get("licenses", ()):
        expression = entry.get("expression") or entry.get("license", {}).get("id")
        if expression:
            return str(expression)
    return ""


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Return whether the allowed licences satisfy an SPDX expression; older crates write a slash for OR."""
    words = re.findall(r"[()]|[^\s()]+(?: WITH [^\s()]+)?", expression.replace("/", " OR "))
    operators = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    # All words that are no operators have become True or False.
    return bool(words) and bool(
        eval(" ".join(operators.get(word, str(word in allowed)) for word in words))
    )


def defects(listed: dict[str, dict[str, Any]], crates: set[str], allowed: set[str]) -> list[str]:
    """Return the crates that the list lacks, and those whose licence is not allowed."""
    wrong = [
        f"{crate} is linked, and the SBOM lacks it" for crate in sorted(crates - listed.keys())
    ]
    # maturin also lists what only compiles the others; deny.toml is about those in scripts/deny.sh.
    for crate in sorted(crates & listed.keys()):
        expression = licence(listed[crate])
        if not is_allowed(expression, allowed):
            wrong.append(f"{crate} has the licence {expression or 'of nobody'}")
    return wrong


def main() -> int:
    """Check the wheel that the command line names; return the exit status."""
    (wheel,) = [Path(name) for name in sys.argv[1:]]
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    listed, crates = components(wheel), linked()
    wrong = defects(listed, crates, set(rules["licenses"]["allow"]))
    licence_texts = texts(wheel)
    others = {crate for crate in crates if not crate.startswith("headgate-")}
    wrong += [
        f"the texts of licences lack {crate}"
        for crate in sorted(others)
        if f"\n{crate} (" not in licence_texts
    ]
    for path in wheel.parent.iterdir():
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            wrong.append(f"{path.name} has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}")
    print(*wrong or [f"{len(listed)} crates in the SBOM, {len(crates)} are linked"], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
