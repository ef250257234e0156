"""Counts the instructions of the hot paths with callgrind: counts do not depend on how busy the machine is.

The workloads are the tests ``counts_*`` of the crate ``exchange``; instructions inside functions named
``counted_*`` are counted. The Cargo profile ``instructions`` optimizes crate by crate, because optimizing
the whole program, as for the wheel, takes minutes. ``--check`` compares with the recorded counts and fails
if one has grown; without it the counts are recorded. Neither the kernel's work nor waiting is counted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benches import harness

ROOT = Path(__file__).resolve().parent.parent
BENCH = "instructions"
RECORDED = harness.RESULTS / f"{BENCH}.json"

#: A count that grew by more is a regression. The same sources give the same counts within 0.01 %; a change
#: elsewhere in a crate can alter layout and inlining by the rest.
TOLERANCE = 0.02

#: Long copies use vectors too: `rep movsb` would count as one instruction for each byte.
TUNABLES = (
    "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000"
)

AGAIN = f"make bench NAME={BENCH}"


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what was recorded")
    parser.add_argument(
        "--features", default="", help="Cargo features to count with; nothing is recorded then"
    )
    options = parser.parse_args(arguments)
    if missing := not_here():
        print(f"{BENCH}: not counted, {missing}", file=sys.stderr)
        return
    program, tests = workloads(options.features)
    counts = {name: count(program, test) for name, test in tests.items()}
    found = {
        "compiler": said_by("rustc", "--version"),
        "valgrind": said_by("valgrind", "--version"),
    }
    if options.check:
        check(json.loads(RECORDED.read_text(encoding="utf-8")), found, counts)
        return
    before = recorded()
    print(f"\n{BENCH}: {found['compiler']}, {found['valgrind']}")
    for name, number in counts.items():
        change = f"{number / before[name] - 1:+.2%}" if name in before else "new"
        print(f"  {name:<40}{number:>14,}{change:>9}")
    if not (options.quick or options.features):
        harness.store(BENCH, tolerance=TOLERANCE, **found, counts=counts)


def not_here() -> str | None:
    """Return the reason why this machine cannot count, or None."""
    if not shutil.which("valgrind"):
        return "there is no valgrind: apt-get install valgrind"
    # Valgrind offers AVX2 at most, and less on an older processor.
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split():
        return "this processor has no AVX2 and would take other paths than those recorded"
    return None


# --- building and running ---


def workloads(features: str) -> tuple[Path, dict[str, str]]:
    """Build the tests; return the program, and the test of each workload."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json"]
    command += ["--features", features] if features else []
    built = subprocess.run(
        [*command, "--profile", BENCH, "--package", "headgate-exchange", "--lib"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    messages = map(json.loads, built.stdout.splitlines())
    (program,) = {Path(found) for message in messages if (found := message.get("executable"))}
    listed = said_by(program, "--list", "--format=terse")
    tests = re.findall(r"^((?:\w+::)*counts_(\w+)): test$", listed, re.MULTILINE)
    return program, {name.replace("_", " "): test for test, name in tests}


def count(program: Path, test: str) -> int:
    """Return the number of instructions inside the counted functions of a test."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        output = Path(folder) / "callgrind.out"
        command = [
            *("valgrind", "--quiet", "--error-exitcode=1", "--tool=callgrind"),
            "--toggle-collect=*::counted_*",
            f"--callgrind-out-file={output}",
            *(program, "--exact", test, "--test-threads=1", "--quiet"),
        ]
        environ = os.environ | {"GLIBC_TUNABLES": TUNABLES}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            raise SystemExit(f"{test} failed under valgrind:\n{done.stdout}{done.stderr}")
        return total(output.read_text(encoding="utf-8"))


def total(profile: str) -> int:
    """Return the total of a profile in callgrind's format."""
    totals = [int(number) for number in re.findall(r"^totals: (\d+)", profile, re.MULTILINE)]
    if len(totals) != 1 or not totals[0]:
        raise ValueError(f"one total above 0 is expected, there are {totals}")
    return totals[0]


def said_by(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# --- comparing ---


def recorded() -> Mapping[str, int]:
    if not RECORDED.exists():
        return {}
    return json.loads(RECORDED.read_text(encoding="utf-8"))["counts"]


def check(
    record: Mapping[str, object], found: Mapping[str, str], counts: Mapping[str, int]
) -> None:
    """Raise SystemExit if a count is above the recorded one; name those that are below."""
    before = record["counts"]
    others = [
        f"{tool} is {version}, recorded with {record[tool]}"
        for tool, version in found.items()
        if version != record[tool]
    ]
    changes = [words for words in differences(before, counts) if words]
    lines = "\n".join(f"  {words}" for words in changes)
    if others:
        # Another compiler builds another program: the counts say nothing about the sources.
        print(f"{BENCH}: not compared, {'; '.join(others)}\n{lines}", file=sys.stderr)
        return
    if set(before) != set(counts) or grown(before, counts):
        raise SystemExit(
            f"{BENCH}: not as in {RECORDED.relative_to(ROOT)} at {record['commit']}\n{lines}\n"
            f"  more than {TOLERANCE:.0%} more is a regression; if it is meant: {AGAIN}, and say why"
        )
    print(f"{BENCH}: {len(counts)} counts as recorded, within {TOLERANCE:.0%}", file=sys.stderr)
    if lines:
        print(f"{lines}\n  to keep what was gained: {AGAIN}", file=sys.stderr)


def grown(before: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    limit = 1 + TOLERANCE
    return [name for name in counts if name in before and counts[name] > before[name] * limit]


def differences(before: Mapping[str, int], counts: Mapping[str, int]) -> Iterator[str]:
    for name in sorted({*before, *counts}):
        if name not in counts:
            yield f"{name}: recorded, but there is no such workload"
        elif name not in before:
            yield f"{name}: {counts[name]:,} instructions, not recorded"
        elif abs(counts[name] / before[name] - 1) > TOLERANCE:
            change = counts[name] / before[name] - 1
            yield f"{name}: {before[name]:,} -> {counts[name]:,} instructions, {change:+.1%}"
