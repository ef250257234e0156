"""Compares and changes the version of Headgate, whose one source is ``[workspace.package]`` of Cargo.toml.

    release.py check [TAG]       fails if a file has another version, or the changelog has no section for it; with a
                                 tag, which is v0.1.0 for the version 0.1.0, also if something is not released yet
    release.py bump X.Y.Z        writes the version into all files, and the changelog from the files of changes/
    release.py notes             prints the newest section of the changelog

``bump`` needs towncrier: ``scripts/venv.sh release`` installs it. RELEASING.md has the steps around it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"\d+\.\d+\.\d+")
#: The date of a version that has no release yet.
UNRELEASED = "unreleased"
HEADING = re.compile(rf"^## \[({VERSION.pattern})\] - (\S+)$", re.MULTILINE)
#: towncrier writes behind this line, which stands below the newest heading.
MARKER = "<!-- towncrier release notes start -->\n"
#: The version in the name of a wheel, on pages of platforms that take no pattern.
WHEEL = r"(headgate-)(\d[^-\s]*)(-cp311-abi3-)"
#: Files that repeat the version. Each match of a pattern has it as group 2, between what stays.
COPIES = {
    "Cargo.toml": r"(?m)(^\[workspace\.package\]\nversion = \")([^\"]+)(\")",
    "Cargo.lock": r"(?m)(^name = \"headgate-[^\"]+\"\nversion = \")([^\"]+)(\")",
    "CITATION.cff": r"(?m)(^version: \"?)([^\"\s]+)(\"?$)",
    "recipe/recipe.yaml": r"(?m)(^  version: \"?)([^\"\s]+)(\"?$)",
    "docs/deploy/databricks.md": WHEEL,
    "docs/deploy/fabric.md": WHEEL,
    "docs/deploy/glue.md": WHEEL,
}


def version(root: Path = ROOT) -> str:
    """Return the version of the workspace, by which maturin versions the package."""
    manifest = tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))
    number: str = manifest["workspace"]["package"]["version"]
    return number


def sections(changelog: str) -> list[tuple[str, str, str]]:
    """Return version, date and text of each section of a changelog, in order."""
    parts = HEADING.split(changelog)[1:]
    return list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))


def notes(changelog: str) -> str:
    """Return the text of the newest section, without the heading and towncrier's marker."""
    return sections(changelog)[0][2].replace(MARKER, "").strip()


def fragments(root: Path) -> list[str]:
    """Return the names of the files of changes/ that are not in the changelog yet."""
    return sorted(path.name for path in (root / "changes").glob("*.md") if path.stem != "README")


def defects(root: Path, tag: str | None = None) -> list[str]:
    """Return in which ways the files, and the tag if there is one, do not fit the version."""
    wanted = version(root)
    wrong = []
    for name, pattern in COPIES.items():
        path = root / name
        copies = re.findall(pattern, path.read_text(encoding="utf-8")) if path.exists() else []
        if path.exists() and not copies:
            wrong.append(f"{name} has no version")
        wrong += sorted(
            {f"{name} has {copy}, not {wanted}" for _, copy, _ in copies if copy != wanted}
        )
    newest = next(iter(sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))), None)
    if newest is None or newest[0] != wanted:
        heading = newest[0] if newest else "no version"
        return [*wrong, f"CHANGELOG.md begins with {heading}, not {wanted}"]
    _, day, text = newest
    if not re.search(r"^- ", text, re.MULTILINE):
        wrong.append(f"CHANGELOG.md says nothing about {wanted}")
    if tag is None:
        return wrong
    if tag != f"v{wanted}":
        wrong.append(f"the tag is {tag}, not v{wanted}")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day):
        wrong.append(f"the date of {wanted} in CHANGELOG.md is {day}")
    wrong += [f"changes/{name} is not in CHANGELOG.md" for name in fragments(root)]
    return wrong


def towncrier(root: Path, number: str) -> None:
    """Move the files of changes/ into the changelog, behind the marker."""
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", number]
    subprocess.run(command, cwd=root, check=True)
    changelog = root / "CHANGELOG.md"
    text = re.sub(r"\n+(?=#{2,3} )", "\n\n", changelog.read_text(encoding="utf-8"))
    changelog.write_text(text, encoding="utf-8")


def bump(
    root: Path, number: str, day: date, build: Callable[[Path, str], None] = towncrier
) -> None:
    """Write a version and its section of the changelog.

    The newest section gets the date if it has this version and no date; otherwise a new one goes above it.

    Raises:
        ValueError: if the version is not newer than the last release, or there is no change to write about.
    """
    if not VERSION.fullmatch(number):
        raise ValueError(f"{number} is no version; three numbers are needed, such as 0.2.0")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    newest, newest_day, _ = sections(text)[0]
    first = HEADING.search(text)
    assert first
    is_open = newest_day == UNRELEASED
    if is_open and newest == number:
        text = f"{text[: first.start()]}## [{number}] - {day}{text[first.end() :]}"
    elif is_open:
        raise ValueError(f"{newest} is not released yet; release it before {number}")
    elif _parts(number) <= _parts(newest):
        raise ValueError(f"{number} is not newer than {newest}, the last release")
    elif not fragments(root):
        raise ValueError(f"changes/ has no file, so there is nothing to say about {number}")
    else:
        rest = text[first.start() :].replace(f"{MARKER}\n", "", 1)
        text = f"{text[: first.start()]}## [{number}] - {day}\n\n{MARKER}\n{rest}"
    changelog.write_text(text, encoding="utf-8")
    for name, pattern in COPIES.items():
        path = root / name
        if path.exists():
            copied = re.sub(pattern, rf"\g<1>{number}\g<3>", path.read_text(encoding="utf-8"))
            path.write_text(copied, encoding="utf-8")
    if fragments(root):
        build(root, number)


def _parts(number: str) -> list[int]:
    """Return the numbers of a version, which compare in order."""
    return [int(part) for part in number.split(".")]


def main() -> int:
    """Do what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description="compare or change the version of Headgate")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("tag", nargs="?")
    commands.add_parser("bump").add_argument("version")
    commands.add_parser("notes")
    arguments = parser.parse_args()
    if arguments.command == "notes":
        print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
        return 0
    if arguments.command == "bump":
        try:
            bump(ROOT, arguments.version, datetime.now(UTC).date())
        except ValueError as error:
            parser.error(str(error))
        return 0
    wrong = defects(ROOT, arguments.tag)
    print(*wrong or [f"{version()} in all files"], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
