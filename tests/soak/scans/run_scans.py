"""Compares random scans with Spark's answers: ``run_scans [--seed N] [--count M] [--master local[2]]``.

Prints how many scans were read by workers, the reasons of the others, and each difference with its seed. The exit
status is 1 if there is a difference, or if workers read less than a fifth of the scans.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.kit import sessions
from tests.kit.random_scans import SCANS, Report, run

#: Scans between two lines of progress.
STEP = 50 * SCANS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    whole = Report()
    with tempfile.TemporaryDirectory() as folder:
        session = sessions.builder(arguments.master, "random scans", Path(folder)).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        for seed in range(arguments.seed, arguments.seed + arguments.count, STEP):
            rest = arguments.seed + arguments.count - seed
            part = run(session, folder, seed, min(STEP, rest))
            whole += part
            print(*part.differences, sep="\n", end="\n" if part.differences else "")
            print(f"up to seed {seed + min(STEP, rest)}: {whole.workers} by workers,", end=" ")
            print(f"{len(whole.differences)} differ", flush=True)
        session.stop()
    print(whole)
    sys.exit(bool(whole.differences) or whole.workers < arguments.count // 5)


if __name__ == "__main__":
    main()
