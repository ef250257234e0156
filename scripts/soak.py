"""Runs the soak: the tests that ``make test`` leaves out, part by part, and prints the time of each.

    soak.py                    all parts
    soak.py loom chaos         these parts
    soak.py --list             names the parts and the minutes that they took on two cores
    soak.py --touched          the parts whose sources the last commits changed
    soak.py --minutes 15       ends then: a part that would take longer is left out or stopped, by name

The last commits are those of the twelve hours before the newest one. Every part runs, also after one that
failed; the exit status is 1 if any failed.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The commits of one sitting.
RECENT = "12 hours ago"


@dataclass(frozen=True)
class Part:
    """One part of the soak.

    Attributes:
        name: what ``make soak ARGS=...`` calls it.
        shows: what it would find broken.
        command: its words; the folder is the repository's.
        minutes: what it took on two cores, with the crates compiled.
        sources: patterns of the files that it is about.
        environ: variables that it needs beside the environment's.
    """

    name: str
    shows: str
    command: tuple[str, ...]
    minutes: float
    sources: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


def pytest(*arguments: str) -> tuple[str, ...]:
    """Return the command of a part that pytest runs."""
    return (".venv/bin/python", "-m", "pytest", "-q", *arguments)


EXCHANGE = (
    "rust_core/memory/*",
    "rust_core/protocol/*",
    "rust_core/record/*",
    "rust_core/exchange/*",
    "rust_core/net/*",
    "rust_core/tls/*",
)
SPARK = ("python/headgate/spark/*", "rust_core/bindings/*", "tests/spark/*", "tests/kit/*")
#: The tests of a folder of `make test` that it leaves out.
MARKED = ("-m", "soak", "--numprocesses", "2", "--dist", "loadfile")

#: In the order in which they run: what is quick and finds most comes first.
PARTS = (
    Part(
        "loom",
        "what two threads share, in all orders",
        ("scripts/loom.sh",),
        4,
        ("rust_core/memory/src/*", "rust_core/exchange/src/*"),
    ),
    Part(
        "sanitize",
        "unsafe code that reads or writes what it must not",
        ("scripts/sanitize.sh",),
        6,
        (
            "rust_core/memory/*",
            "rust_core/record/src/*",
            "rust_core/net/src/*",
            "rust_core/exchange/src/*",
        ),
    ),
    Part(
        "deny",
        "crates with a bad licence, a known hole, or of an unknown source",
        ("scripts/deny.sh",),
        1,
        ("Cargo.lock", "Cargo.toml", "rust_core/*/Cargo.toml", "deny.toml"),
    ),
    Part(
        "instructions",
        "a hot path that takes more instructions than recorded",
        ("scripts/instructions.sh",),
        4,
        EXCHANGE,
    ),
    Part(
        "faults",
        "processes, tasks and executors that are killed, stopped or cut off on Spark",
        pytest("tests/soak/spark"),
        13,
        (*SPARK, "tests/soak/spark/*"),
    ),
    Part(
        "marked",
        "the long tests of the folders of `make test`, but those on Spark",
        pytest(
            *MARKED,
            *sorted(f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")),
            "tests/data_plane",
            "tests/driver",
            "tests/faults",
            "tests/sink",
            "tests/source",
            "tests/stream",
        ),
        6,
        (
            "python/headgate/*.py",
            "python/headgate/catalogue/*",
            "python/headgate/sink/*",
            "python/headgate/source/*",
            "python/headgate/stream/*",
            "rust_core/exchange/*",
            "rust_core/net/*",
            "rust_core/tls/*",
            "tests/data_plane/*",
            "tests/driver/*",
            "tests/sink/*",
            "tests/source/*",
            "tests/stream/*",
        ),
    ),
    Part(
        "cluster",
        "the long tests of jobs on Spark, with processes that are killed, and the blocks of the pages",
        pytest(*MARKED, "tests/spark"),
        7,
        SPARK,
    ),
    Part(
        "ends",
        "jobs that are cancelled or interrupted, files that are damaged, what is kept of an exchange after it",
        pytest("tests/soak/ends"),
        5,
        (*SPARK, "tests/soak/ends/*"),
    ),
    Part(
        "network",
        "damaged, delayed and silent links between processes, in real time",
        pytest("tests/soak/network"),
        2,
        (
            "rust_core/net/src/*",
            "rust_core/tls/*",
            "tests/soak/network/*",
            "tests/faults/*",
            "tests/kit/*",
        ),
    ),
    Part(
        "exchanges",
        "two thousand short exchanges that leave memory, descriptors, threads or files",
        pytest("tests/soak/exchanges"),
        2,
        ("tests/soak/exchanges/*",),
    ),
    Part(
        "forged",
        "a million forged handshakes: one that is accepted, read for long or costs memory",
        ("scripts/forged.sh",),
        2,
        (
            "rust_core/protocol/src/handshake/*",
            "rust_core/protocol/tests/forged.rs",
            "rust_core/net/src/*",
            "scripts/forged.sh",
            "tests/data_plane/test_forged.py",
        ),
    ),
    Part(
        "kit",
        "checks for leftovers and hangs that see nothing",
        pytest("tests/soak/kit"),
        2,
        ("tests/kit/*", "tests/soak/kit/*"),
    ),
    Part(
        "one-process",
        "the tests on Spark again, on local[4], which tries no task twice",
        pytest("--numprocesses", "2", "--dist", "loadfile", "tests/spark", "tests/soak/ends"),
        8,
        (*SPARK, "tests/soak/ends/*"),
        {"HEADGATE_TEST_MASTER": "local[4]"},
    ),
    Part(
        "oldest-spark",
        "the tests on Spark again, with PySpark 4.0; scans of Delta tables by workers and by Spark",
        ("scripts/oldest_spark.sh", "tests/spark", "tests/soak/ends", "tests/soak/lakes"),
        17,
        (
            *SPARK,
            "python/headgate/source/delta/*",
            "python/headgate/source/tables/*",
            "scripts/delta_jars.sh",
            "scripts/oldest_spark.*",
            "tests/kit/random_*.py",
            "tests/soak/lakes/*",
        ),
    ),
    Part(
        "preview-spark",
        "names of PySpark and Spark that are no public API, and workers, with the newest preview of PySpark",
        ("scripts/preview_spark.sh", "tests/spark/test_spark_internals.py"),
        3,
        (*SPARK, "scripts/preview_spark.sh"),
    ),
    Part(
        "comet",
        "exchanges on Spark with Comet, which reads and shuffles otherwise; the bench beside it and beside Sail",
        ("scripts/comet.sh", "tests/soak/comet"),
        5,
        (
            "benches/peer*.py",
            "python/headgate/spark/plan/*",
            "python/headgate/spark/tasks/*",
            "scripts/comet*",
            "tests/soak/comet/*",
        ),
    ),
    Part(
        "chaos",
        "exchanges with one random fault each",
        pytest("tests/soak/chaos"),
        2,
        (*SPARK, "tests/soak/chaos/*"),
    ),
    Part(
        "streams",
        "1,700 faults on streaming jobs, queries of Nexmark and calls: rows lost, repeated, paid twice or wrong, hangs",
        # Tests of many minutes, whose jobs have limits of their own.
        pytest("tests/soak/streams", "-s", "-o", "faulthandler_timeout=0"),
        44,
        (
            "python/headgate/stream/*",
            "python/headgate/sink/*",
            "python/headgate/source/*",
            "benches/calls/client.py",
            "benches/nexmark/*",
            "tests/soak/streams/*",
        ),
    ),
    Part(
        "storage",
        "streaming jobs with checkpoints in an object store, scans of three object stores by workers and by Hadoop, a slow disk",
        ("scripts/storage.sh", "tests/soak/storage"),
        4,
        (
            "python/headgate/observe/verdict.py",
            "python/headgate/spark/plan/read_auto/*",
            "python/headgate/spark/stores/*",
            "python/headgate/stream/*",
            "scripts/azurite.sh",
            "scripts/store_jars.sh",
            "scripts/storage.sh",
            "tests/soak/storage/*",
        ),
    ),
    Part(
        "scans",
        "two thousand random scans of random tables, read by workers and by Spark",
        (".venv/bin/python", "-m", "tests.soak.scans.run_scans"),
        5,
        (
            "python/headgate/source/files/*",
            "python/headgate/spark/filters.py",
            "python/headgate/spark/plan/read_auto/*",
            "tests/kit/random_*.py",
            "tests/soak/scans/*",
        ),
    ),
    Part(
        "standalone",
        "a cluster of several hosts, Headgate in an archive, hosts that are killed",
        pytest("tests/soak/standalone"),
        8,
        (*SPARK, "tests/soak/standalone/*", "docs/clusters.md"),
    ),
    Part(
        "kafka",
        "a source and a sink of Kafka with a real broker: transactions, crashes, a broker that is killed",
        ("scripts/kafka.sh", "tests/soak/kafka"),
        12,
        (
            "python/headgate/_kafka.py",
            "python/headgate/sink/*",
            "python/headgate/source/kafka/*",
            "scripts/kafka.sh",
            "tests/soak/kafka/*",
        ),
    ),
    Part(
        "browser",
        "the live page in Chromium: who gets in, tables, colours, a run that goes on, requests elsewhere",
        ("scripts/browser.sh", "tests/soak/browser"),
        6,
        ("python/headgate/observe/*", "scripts/browser.sh", "tests/soak/browser/*"),
    ),
    Part(
        "programs",
        "the demo, the doctor, the cookbooks, the long pages, the benches and a client of Spark Connect, run as a whole",
        ("scripts/programs.sh", "tests/soak/programs"),
        6,
        (
            "benches/*",
            "docs/calls-cookbook.md",
            "docs/cookbook.md",
            "docs/iterate.md",
            "docs/migrate.md",
            "docs/tutorial.md",
            "python/headgate/demo.py",
            "python/headgate/spark/con*.py",
            "python/headgate/spark/doctor/*",
            "python/headgate/spark/plan/*",
            "python/headgate/stream/operators/calls/*",
            "scripts/programs.sh",
            "tests/soak/programs/*",
        ),
    ),
    Part(
        "notebooks",
        "a notebook that fails, or prints something else than is stored",
        ("scripts/notebooks.sh", "--check", "tests/soak/notebooks"),
        6,
        (
            "docs/notebooks/*",
            "docs/cookbook.md",
            "python/headgate/*.py",
            "scripts/notebooks.*",
            "tests/soak/notebooks/*",
        ),
    ),
    Part(
        "site",
        "a page or docstring that Sphinx warns of, a link of the site that leads nowhere",
        ("scripts/docs.sh",),
        2,
        ("docs/*", "*.md", "python/headgate/*.py", "scripts/docs.sh", "scripts/check_site.py"),
    ),
    Part(
        "wheel",
        "the wheel, the same from any folder, and each block of both READMEs in a clean environment",
        ("scripts/wheel.sh", "--twice"),
        12,
        (
            "README.md",
            "docs/streams-readme.md",
            "pyproject.toml",
            "scripts/*wheel*",
            "python/headgate/*demo.py",
        ),
    ),
    Part(
        "fallback",
        "the wheel without the native module, and each block of the README with it, in a clean environment",
        ("scripts/fallback.sh", "--check"),
        3,
        (
            "README.md",
            "scripts/*wheel*",
            "scripts/fallback.sh",
            "python/headgate/_missing.py",
        ),
    ),
    Part(
        "schedules",
        "all orders of small connections, a million jobs with checkpoints, and twenty times the random "
        "schedules of make test",
        ("scripts/schedules.sh", "--short"),
        12,
        (*EXCHANGE, "python/headgate/source/*", "tests/source/*"),
    ),
)


def main() -> int:
    """Run the parts that were asked for; return the exit status."""
    options = parse(sys.argv[1:])
    if options.list:
        for part in PARTS:
            print(f"{part.name:<13}{part.minutes:>3g} min  {part.shows}")
        return 0
    chosen = [part for part in PARTS if not options.parts or part.name in options.parts]
    if options.touched:
        changed = changed_files()
        chosen = [part for part in chosen if is_about(part, changed)]
    return run(chosen, options.minutes)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options; an unknown part ends the program with the names of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(names))
    parser.add_argument("--list", action="store_true", help="name the parts and their minutes")
    parser.add_argument("--touched", action="store_true", help="by what the last commits changed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end before that")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.parts) - set(names)):
        parser.error(f"no part {', '.join(unknown)}; there are: {' '.join(names)}")
    return options


def changed_files() -> list[str]:
    """Return the files that the last commits changed; all files where there is no older commit."""
    newest = git("log", "-1", "--format=%ct").strip()
    before = int(newest) - 12 * 3600
    base = git("rev-list", "-1", f"--before={before}", "HEAD").strip()
    return (
        git("diff", "--name-only", base, "HEAD").splitlines()
        if base
        else git("ls-files").splitlines()
    )


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(
        ("git", *words), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def is_about(part: Part, changed: list[str]) -> bool:
    """Return whether a part is about any of these files."""
    return any(fnmatch(file, pattern) for file in changed for pattern in part.sources)


def run(parts: list[Part], minutes: float) -> int:
    """Run parts one after the other; print what became of each, last."""
    started = time.monotonic()
    outcomes = {}
    for part in parts:
        spent = (time.monotonic() - started) / 60
        if spent + part.minutes > minutes:
            outcomes[part.name] = (
                f"left out: takes {part.minutes:g} min, {minutes - spent:.0f} are left"
            )
            continue
        print(f"\n\033[1msoak: {part.name}: {part.shows}\033[0m", flush=True)
        begun = time.monotonic()
        status = command(part, 60 * (minutes - spent))
        word = "passed" if status == 0 else f"FAILED with status {status}"
        if status is None:
            word = "stopped, as the time was over,"
        outcomes[part.name] = f"{word} in {(time.monotonic() - begun) / 60:.1f} min"
    total = (time.monotonic() - started) / 60
    print(f"\nsoak: {len(parts)} of {len(PARTS)} parts in {total:.1f} min")
    for name, outcome in outcomes.items():
        print(f"  {name:<13}{outcome}")
    return 1 if any("FAILED" in outcome for outcome in outcomes.values()) else 0


def command(part: Part, seconds: float) -> int | None:
    """Run a part's command; return its status, or None if it was stopped because the time was over."""
    environ = os.environ | part.environ
    with subprocess.Popen(part.command, cwd=ROOT, env=environ, start_new_session=True) as running:
        try:
            return running.wait(None if math.isinf(seconds) else seconds)
        except BaseException as error:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(running.pid, number)
                    running.wait(10)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    return None


if __name__ == "__main__":
    sys.exit(main())
