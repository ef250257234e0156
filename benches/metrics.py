"""The cost of metrics: the loopback with them, against the same build without.

The native module is built twice: as it is, and with the Cargo feature ``without-metrics``, which counts
nothing and times no wait. One channel between two processes over TCP carries batches of 256 KiB, in
segments of 256 KiB, and in segments of 32 KiB, where eight times as many buffers are counted. At a ratio
of 1 metrics cost nothing; they may cost 0.99.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benches import harness, loopback

import headgate as hg

ROOT = Path(__file__).resolve().parent.parent
BATCH_BYTES = 256 << 10
TOTAL = 2 << 30
SEGMENTS = {"metrics": "256k", "metrics_small": "32k"}
BUILDS = {"with metrics": (), "without": ("--features", "without-metrics")}
#: Environment variable that names the build to a measuring process.
BUILD = "HEADGATE_BENCH_BUILD"


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument(
        "--once", nargs=2, metavar=("SEGMENT", "BATCHES"), help="one run, in seconds"
    )
    options = parser.parse_args(arguments)
    if options.once:
        print(once(options.once[0], int(options.once[1])))
        return
    number = TOTAL // BATCH_BYTES // (16 if options.quick else 1)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        packages = {build: package(Path(folder), build) for build in BUILDS}
        for name, segment in SEGMENTS.items():
            harness.compare(
                name,
                f"{number:,} batches of {BATCH_BYTES >> 10} KiB in segments of {segment}, one channel, "
                f"two processes, TCP on {loopback.HOST}; the same without metrics",
                {
                    build: partial(measure, packages[build], build, segment, number)
                    for build in BUILDS
                },
                [harness.Ratio(name, "without", "with metrics", goal=0.99)],
                turns=options.turns,
                size=number * BATCH_BYTES,
                quick=options.quick,
            )


def package(folder: Path, build: str) -> Path:
    """Build the native module; return a folder from which the package with it can be imported."""
    place = folder / build.replace(" ", "-")
    maturin = Path(sys.executable).with_name("maturin")
    command = [maturin, "build", "--release", "--locked", "--out", place, *BUILDS[build]]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (native,) = [
            name for name in archive.namelist() if "_native" in name and name.endswith(".so")
        ]
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "python", place, ignore=ignored, dirs_exist_ok=True)
        archive.extract(native, place)
    return place


def measure(place: Path, build: str, segment: str, number: int) -> float:
    """Return the seconds of one run in processes that import the package from a folder."""
    environ = os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}", BUILD: build}
    command = [sys.executable, "-m", "benches", "metrics", "--once", segment, str(number)]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return float(done.stdout)


def once(segment: str, number: int) -> float:
    """Return the seconds that this many batches take between two processes, after a few to warm up."""
    with harness.process(loopback.produce) as producer:
        run = partial(
            loopback.headgate, producer, BATCH_BYTES, segment_size=segment, same_host_link="off"
        )
        run(number // 16)
        check_build()
        return run(number)


def check_build() -> None:
    """Raise if the loaded build is not the one that should be measured."""
    with hg.ShuffleEnvironment() as env:
        partition = env.create_result_partition(1)
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            writer.emit(b"counted")
        counted = env.stats()["metrics"]["task"]["numBuffersOut"]
        if bool(counted) is not (os.environ[BUILD] == "with metrics"):
            raise AssertionError(f"the build {os.environ[BUILD]} counted {counted} buffers")
