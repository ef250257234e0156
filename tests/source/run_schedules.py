"""python -m tests.source.run_schedules [--count N] [--seed N] [--processes N]: many schedules."""

import argparse
import logging
import multiprocessing
import time
import traceback

from tests.source.schedule import run_schedule

CHUNK = 5000


def run_chunk(seeds):
    """Return the numbers of schedules and of steps, and the first failure as text, or None."""
    logging.getLogger("headgate.source").setLevel(logging.ERROR)  # Failures in close are intended.
    steps = 0
    for seed in seeds:
        try:
            steps += run_schedule(seed)
        except Exception:  # noqa: BLE001 - reported with its seed
            return seed - seeds.start, steps, f"seed {seed}\n{traceback.format_exc()}"
    return len(seeds), steps, None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    end = asked.seed + asked.count
    chunks = [range(a, min(a + CHUNK, end)) for a in range(asked.seed, end, CHUNK)]
    count = steps = 0
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for done, taken, failure in pool.imap_unordered(run_chunk, chunks):
            count, steps = count + done, steps + taken
            if failure is not None:
                raise SystemExit(f"{failure}\nagain: --seed <that one> --count 1 --processes 1")
    took = time.monotonic() - started
    print(
        f"{count:,} schedules of {steps:,} steps, seeds {asked.seed} to {end - 1}, "
        f"nothing lost or repeated, {took:.0f} s in {asked.processes} processes"
    )


if __name__ == "__main__":
    main()
