"""python -m tests.soak.chaos.run_chaos [--count N] [--seed N] [--busy] [--json FILE]

Each run is a keyed job on local-cluster with one fault, both drawn from its seed.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from tests.soak.chaos.crew import run_seeds
from tests.soak.chaos.figures import line, table, write_json
from tests.soak.chaos.judge import GOOD
from tests.soak.chaos.plan import KINDS


@contextmanager
def busy_cores(number):
    """Keep ``number`` cores busy with other processes."""
    spin = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(number)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(options, out=print):
    """Run all seeds; return the results."""
    results = []

    def tell(result):
        results.append(result)
        out(line(result))

    with busy_cores((os.cpu_count() or 1) if options.busy else 0):
        run_seeds(range(options.seed, options.seed + options.count), options, tell)
    return results


def parser():
    """Return the parser of the command line. The defaults are those of a full run."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--count", type=int, default=500)
    made.add_argument("--seed", type=int, default=0, help="the first one")
    made.add_argument("--processes", type=int, default=2, help="sessions at the same time")
    made.add_argument("--limit", type=float, default=30.0, help="seconds until a run is a hang")
    made.add_argument("--busy", action="store_true", help="keep all cores busy during the runs")
    made.add_argument("--json", help="file for results and figures")
    made.add_argument("--kind", choices=[*dict.fromkeys(KINDS), "none"], help="this fault only")
    made.add_argument("--mutation", choices=["drop", "twice"], help="damage the rows of all runs")
    return made


def main():
    options = parser().parse_args()
    # SIGTERM must end the sessions too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    started = time.monotonic()
    results = run(options, lambda text: print(text, flush=True))
    took = time.monotonic() - started
    print("", *table(results), sep="\n")
    about = {"seed": options.seed, "count": options.count, "busy": options.busy, "seconds": took}
    print(
        f"\n{options.count} runs, seeds {options.seed} to {options.seed + options.count - 1}, "
        f"{took:.0f} s in {options.processes} sessions{', cores busy' * options.busy}"
    )
    if options.json:
        write_json(options.json, results, about)
    bad = [result["seed"] for result in results if result["outcome"] not in GOOD]
    if bad:
        raise SystemExit(f"failed seeds: {bad}\nrepeat one with: --seed <seed> --count 1")


if __name__ == "__main__":
    main()
