"""Runs streaming jobs with faults: ``run_streams [--seed N] [--count M] [--faults F] [--spark | --nexmark | --calls]``.

``--count`` jobs with the seeds from ``--seed`` on, or as many jobs as it takes for ``--faults`` faults. Prints a line per
job, and a table of the faults and outcomes at the end. A job's folder is kept if it fails.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.soak.streams.calls_job import CallsJob
from tests.soak.streams.job import Job
from tests.soak.streams.nexmark_job import NexmarkJob

#: Faults of one job.
FAULTS = 14
DISK = "64m"


def run_one(seed, base, make):
    """Run a job in a folder of its own; return its outcome."""
    folder = Path(base) / f"job-{seed}"
    folder.mkdir()
    mounted = _mount(folder)
    outcome = make(seed, folder, FAULTS, mounted).run()
    if outcome.error:
        # Kept, as files of this file system, for whoever looks into it.
        shutil.copytree(folder, Path(base) / f"failed-{seed}", dirs_exist_ok=True)
        (Path(base) / f"failed-{seed}.txt").write_text(outcome.error)
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    shutil.rmtree(folder)
    return outcome


def _mount(folder):
    """Mount a small disk, if this user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(seed, count, faults, jobs, base, out=None, *, make=Job):
    """Run jobs until there are as many faults; return their outcomes. ``make`` is called as :class:`Job`."""
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        running = set()
        while True:
            happened = sum(sum(one.faults.values()) for one in outcomes)
            more = len(outcomes) + len(running) < count if count else happened < faults
            while more and len(running) < jobs:
                running.add(pool.submit(run_one, seed, base, make))
                seed += 1
                more = len(outcomes) + len(running) < count if count else happened < faults
            if not running:
                return outcomes
            done = {one for one in running if one.done()}
            running -= done
            for one in done:
                outcome = one.result()
                outcomes.append(outcome)
                faults_of = sum(outcome.faults.values())
                said = outcome.error.partition("\n")[0] or "right"
                seed_of = " ".join(filter(None, (f"seed {outcome.seed}", outcome.name)))
                line = f"{seed_of}: {faults_of} faults, {outcome.seconds:.1f} s: {said}"
                print(line, file=out or sys.stdout, flush=True)
            time.sleep(0.02)


def table(outcomes):
    """Return the faults and outcomes as text."""
    faults, failed, counts = Counter(), Counter(), Counter()
    for one in outcomes:
        faults += one.faults
        counts += one.counts
        if one.error:
            failed.update(dict.fromkeys(one.faults, 1))
    wrong = [one for one in outcomes if one.error]
    lines = [f"{kind:<36}{number:>6}" for kind, number in sorted(faults.items())]
    lines += [f"{'all':<36}{sum(faults.values()):>6}"]
    lines += [f"{len(outcomes)} jobs, {len(wrong)} wrong: {[one.seed for one in wrong]}"]
    lines += [f"{sum(one.missed for one in outcomes)} faults whose moment never came"]
    lines += [f"{name}: {number}" for name, number in sorted(counts.items())]
    return "\n".join(lines)


def main():
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the first job")
    parser.add_argument("--count", type=int, default=0, help="number of jobs")
    parser.add_argument(
        "--faults", type=int, default=1000, help="number of faults, without --count"
    )
    parser.add_argument("--jobs", type=int, default=2, help="jobs at a time")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--spark", action="store_true", help="jobs on a cluster of two executors")
    kinds.add_argument("--nexmark", action="store_true", help="the queries of Nexmark")
    kinds.add_argument("--calls", action="store_true", help="jobs that call a service")
    parser.add_argument("--folder", help="for the jobs; a temporary one by default")
    given = parser.parse_args()
    base = given.folder or tempfile.mkdtemp(prefix="streams-")
    Path(base).mkdir(exist_ok=True)
    started = time.monotonic()
    size = (given.seed, given.count, given.faults, given.jobs)
    make = partial(Job, on_spark=given.spark)
    make = NexmarkJob if given.nexmark else CallsJob if given.calls else make
    outcomes = run(*size, base, make=make)
    print(table(outcomes))
    print(f"{time.monotonic() - started:.0f} s")
    return any(one.error for one in outcomes)


if __name__ == "__main__":
    sys.exit(main())
