"""Check a built wheel in a clean environment, as somebody who has nothing else would use it.

Name, size, contents, the list of crates and their licences; that no member names a folder of the building machine; how
`import headgate` behaves; the demo's error without its packages; and every Python block of README.md
and of the README of streams with the extra "spark", each by itself and twice. A wheel without the native
module has no crates, and no blocks of streams run: an environment must say which wheel it needs.

    python scripts/check_wheel.py dist/headgate-*manylinux*.whl
    python scripts/check_wheel.py --local WHEEL      one that pip built from the sdist, for this machine alone

Decisions: ADR 0006, ADR 0063.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from page_blocks import README, STREAMS, blocks, wrong_with

MAX_BYTES = 10 * 1024 * 1024
#: Seconds.
GOAL_OF_IMPORT = 0.050
IMPORT_RUNS = 9

_PLATFORM = r"(manylinux_2|musllinux_1)_\d+_(x86_64|aarch64)"
NAME = re.compile(rf"headgate-[0-9][^-]*-(cp311-abi3-{_PLATFORM}|py3-none-any)\.whl")
LOCAL = re.compile(r"headgate-[0-9][^-]*-cp311-abi3-linux_\w+\.whl")
#: The native module, or what stands for it in a wheel without one.
NATIVE, STAND_IN = "headgate/_native.abi3.so", "headgate/_native.py"
#: Pages that the command ``docs`` prints.
ROOT = README.parent
DOCS = ROOT / "docs"
SBOM = re.compile(r"[^/]+\.dist-info/sboms/.+\.cyclonedx\.json")
#: The licences of these crates; scripts/crate_licences.py collects them.
LICENCES = re.compile(r"[^/]+\.dist-info/licenses/THIRD-PARTY\.txt")
#: Crates that the native module has for sure; the list of crates must name them.
CRATES = {"headgate-exchange", "pyo3", "rustls", "zstd-sys"}
UNWANTED = re.compile(r"\.(rs|toml|lock|c|h)$|(^|/)(tests|benches|rust_core|__pycache__)(/|$)")

# Runs with a wheel without the native module.
REFUSED = "import headgate\n\nheadgate.ShuffleEnvironment()\n"
# Runs in a fresh interpreter of the clean environment.
PROBE = """
import json, sys, threading, time
before = set(sys.modules)
start = time.perf_counter()
import headgate
seconds = time.perf_counter() - start
with open("/proc/self/status") as status:
    threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
print(json.dumps({
    "seconds": seconds,
    "threads": threads,
    "modules": sorted(set(sys.modules) - before),
}))
"""


def is_pure(wheel: Path) -> bool:
    """Return True for a wheel without the native module."""
    return wheel.name.endswith("-py3-none-any.whl")


def product() -> dict[str, Path]:
    """Return the files of the repository that a wheel has, by their names in it."""
    packages = ROOT / "python"
    files = {
        path.relative_to(packages).as_posix(): path
        for path in packages.rglob("*")
        if path.is_file() and path.suffix != ".so" and "__pycache__" not in path.parts
    }
    return files | {f"headgate/docs/{page.name}": page for page in DOCS.glob("*.md")}


def check_contents(wheel: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the defects of the file itself, whose name has a pattern."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wrong = [
            f"{name} is not the one of the repository" if name in names else f"{name} is missing"
            for name, file in product().items()
            if name not in names or archive.read(name) != file.read_bytes()
        ]
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        required = re.findall(
            r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE
        )
    if not pattern.fullmatch(wheel.name):
        wrong.append(f"{wheel.name} does not fit {pattern.pattern}")
    if wheel.stat().st_size > MAX_BYTES:
        wrong.append(f"{wheel.stat().st_size:,} bytes, more than {MAX_BYTES:,}")
    module, other = (STAND_IN, NATIVE) if is_pure(wheel) else (NATIVE, STAND_IN)
    wrong += [] if module in names else [f"{module} is missing"]
    wrong += [f"{name} does not belong in it" for name in names if name == other]
    wrong += [f"{name} does not belong in it" for name in names if UNWANTED.search(name)]
    base = [line for line in required if "extra ==" not in line]
    if not (len(base) == 1 and re.fullmatch(r"pyarrow>=[0-9.]+", base[0])):
        wrong.append(f"it requires {base}, not pyarrow with a floor only")
    return wrong


def folders() -> set[str]:
    """Return the folders of the building machine, none of which a member may name."""
    home = Path.home()
    named = {"CARGO_HOME": home / ".cargo", "RUSTUP_HOME": home / ".rustup"}
    of_rust = [Path(os.environ.get(name, folder)) for name, folder in named.items()]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return {f"{folder}/" for folder in (home, ROOT, target, *of_rust)}


def check_licences(wheel: Path) -> list[str]:
    """Return the defects of the licences of the crates in the wheel, which one without them does not have."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if LICENCES.fullmatch(name)]
        if is_pure(wheel):
            return [f"{name} is about no crate of it" for name in files]
        licence_texts = "".join(archive.read(name).decode() for name in files)
    # headgate's own crates have the licence of the wheel.
    others = sorted(name for name in CRATES if not name.startswith("headgate-"))
    return [
        f"the licence of {name} is missing" for name in others if f"\n{name} " not in licence_texts
    ]


def check_folders(wheel: Path, named: set[str]) -> list[str]:
    """Return the members that name one of the folders, each with the first text that does."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            content = archive.read(member)
            found = [at for folder in named if (at := content.find(folder.encode())) >= 0]
            if found:
                text = content[min(found) :][:120]
                wrong.append(f"{member} names a folder of this machine: {text!r}")
    return wrong


def check_sbom(wheel: Path) -> list[str]:
    """Return the defects of the list of crates (an SBOM, CycloneDX) in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        if is_pure(wheel):
            return [f"{name} lists no crate" for name in archive.namelist() if SBOM.fullmatch(name)]
        lists = [name for name in archive.namelist() if SBOM.fullmatch(name)]
        if len(lists) != 1:
            return [f"{len(lists)} SBOMs, not one"]
        sbom = json.loads(archive.read(lists[0]))
    listed = {part["name"]: part for part in sbom["components"]}
    print(f"  crates    {len(listed)} in the SBOM")
    wrong = [f"the SBOM lacks {name}" for name in sorted(CRATES - listed.keys())]
    wrong += [
        f"the SBOM has no version of {name}" for name in listed if not listed[name].get("version")
    ]
    return wrong


def install(wheel: Path, folder: Path) -> Path:
    """Create an environment with this wheel and its requirements; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True)
    return python


def probe(python: Path) -> dict[str, Any]:
    """Import the package once in a fresh process; return its time, threads and modules."""
    done = subprocess.run(
        [python, "-c", PROBE], check=True, capture_output=True, text=True, cwd=python.parent
    )
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def check_import(python: Path) -> list[str]:
    """Return the defects of the import; print its median time."""
    probe(python)  # once to write the bytecode
    seen = [probe(python) for _ in range(IMPORT_RUNS)]
    median = statistics.median(run["seconds"] for run in seen)
    # No defect: a busy machine takes longer.
    print(f"  import    {median * 1000:.1f} ms median of {IMPORT_RUNS}")
    print(f"RATIO import {GOAL_OF_IMPORT / median:.2f} goal 1")
    wrong = []
    if any(run["threads"] != 1 for run in seen):
        wrong.append("import starts a thread")
    foreign = {name.partition(".")[0] for run in seen for name in run["modules"]}
    if "headgate" not in foreign:
        wrong.append("nothing was imported")
    wrong += [
        f"import brings in {name}" for name in ("numpy", "pandas", "pyspark") if name in foreign
    ]
    return wrong


def check_demo(python: Path) -> list[str]:
    """Return the defects of the demo's error if only the wheel is installed."""
    done = subprocess.run(
        [python, "-m", "headgate", "demo"],
        check=False,
        capture_output=True,
        text=True,
        cwd=python.parent,
    )
    lines = done.stderr.splitlines()
    if done.returncode == 1 and len(lines) == 4 and lines[0].startswith("[HG-1103]"):
        return []
    return [f"the demo without its packages is no error of four lines:\n{done.stderr}"]


def check_refusal(python: Path) -> list[str]:
    """Return the defects of the error of a call that needs the native module, which is missing."""
    done = subprocess.run(
        [python, "-c", REFUSED], check=False, capture_output=True, text=True, cwd=python.parent
    )
    lines = done.stderr.splitlines()[-4:]
    if done.returncode == 1 and len(lines) == 4 and "[HG-1104]" in lines[0]:
        return []
    return [f"an environment without the native module is no error of four lines:\n{done.stderr}"]


def check_readme(python: Path, wheel: Path) -> list[str]:
    """Install the extra "spark"; return the defects of the blocks of both READMEs."""
    subprocess.run([python, "-m", "pip", "install", "-q", f"{wheel}[spark]"], check=True)
    wrong = []
    for page in (README,) if is_pure(wheel) else (README, STREAMS):
        examples = [block for block in blocks(page.read_text(encoding="utf-8")) if block.runs]
        print(f"  {page.name}  {len(examples)} blocks, each by itself and twice")
        wrong += [line for block in examples for line in wrong_with([block], python, times=2)]
        wrong += [] if examples else [f"{page.name} has no Python block"]
    return wrong


def main() -> int:
    """Check the wheel that the command line names; return 1 if it has a defect."""
    is_local = "--local" in sys.argv[1:]
    wheels = [Path(name).resolve() for name in sys.argv[1:] if name != "--local"]
    if len(wheels) != 1:
        print(f"one wheel expected, got {len(wheels)}", file=sys.stderr)
        return 1
    (wheel,) = wheels
    print(f"{wheel.name}\n  size      {wheel.stat().st_size / 1e6:.2f} MB")
    wrong = check_contents(wheel, LOCAL if is_local else NAME) + check_sbom(wheel)
    # Nobody gets the wheel that pip builds, so it may name folders of this machine, and lack the licences of crates.
    wrong += [] if is_local else check_folders(wheel, folders()) + check_licences(wheel)
    with tempfile.TemporaryDirectory(prefix="headgate-wheel-") as folder:
        python = install(wheel, Path(folder) / "venv")
        wrong += check_import(python)
        wrong += check_demo(python)
        wrong += check_refusal(python) if is_pure(wheel) else []
        version = subprocess.run(
            [python, "-m", "headgate", "--version"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for command in (["explain", "HG-2101"], ["docs", "functions"]):
            subprocess.run(
                [python, "-m", "headgate", *command], check=True, stdout=subprocess.DEVNULL
            )
        print(f"  runs      {version} in a clean environment")
        wrong += check_readme(python, wheel)
    for line in wrong:
        print(f"  wrong     {line}", file=sys.stderr)
    print("  ok" if not wrong else f"  {len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
