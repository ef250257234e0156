"""The pipeline on TPC-H's lineitem beside the engines that also keep rows out of the JVM: Comet and Sail.

Revenue by supplier and month over the 6 M rows of scale factor 1 in 7 files, on two slots, into Spark's ``noop``
sink. There is Python on both sides of the shuffle, or on one: ``map`` and ``reduce``, or ``reduce`` alone.

- ``pipeline_sail``: ``exchange(FileSource(...))`` on Spark beside Sail, a Spark Connect server in Rust
- ``pipeline_comet``: ``exchange(df)`` on Spark 4.1 beside DataFrame operations on Spark 4.1 with Comet
- ``under_comet``: ``exchange(df)`` beside DataFrame operations, both on Spark 4.1 with Comet; Python on both sides,
  and on one

The engines' own way is ``read.parquet`` -> ``mapInArrow`` -> ``repartition`` -> ``mapInArrow`` with the same
functions. Comet runs ``mapInArrow`` on its own batches, by its shuffle and its option for that. All sessions start
before anything is timed, each in a process and in an environment of its own, which the cache folder keeps. All
answers are compared, to a hundredth of a cent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from benches import environments, harness, pipeline, pipeline_functions, tpch
from benches.environments import PeerError
from benches.pipeline_functions import exact
from benches.spark import saving, session
from pyspark import cloudpickle

ROOT = Path(__file__).parent.parent
PROGRAM = Path(__file__).with_name("peer_program.py")
ARROW = ("pyarrow==26.0.1", "pandas==2.3.3")
#: Environment -> its packages.
ENVIRONMENTS = {
    "comet": ("pyspark==4.1.2", *ARROW),
    "sail": ("pysail==0.7.2", "pyspark-client==4.1.2", *ARROW),
}
SLOTS = 2
ONLY = ("pipeline_sail", "pipeline_comet", "under_comet")


@dataclass(frozen=True)
class Job:
    """How a contestant gets its answer.

    Attributes:
        session: which one.
        headgate: True by exchange(), False by the operations of DataFrames.
        sides: of the shuffle that have Python.
    """

    session: str
    headgate: bool
    sides: int = 2


#: Part -> its ways by contestant, and its ratios. The contestant "headgate" of the first is the bench ``pipeline``'s.
WAYS = {
    "pipeline_sail": {"sail": Job("sail", headgate=False)},
    "pipeline_comet": {
        "headgate": Job("spark", headgate=True),
        "comet": Job("comet", headgate=False),
        "pyspark": Job("spark", headgate=False),
    },
    "under_comet": {
        "headgate": Job("comet", headgate=True),
        "comet": Job("comet", headgate=False),
        "headgate, one side": Job("comet", headgate=True, sides=1),
        "comet, one side": Job("comet", headgate=False, sides=1),
    },
}
RATIOS = {
    "pipeline_sail": [harness.Ratio("pipeline_sail", "sail", "headgate", goal=1.2)],
    "pipeline_comet": [
        harness.Ratio("pipeline_comet", "comet", "headgate", goal=1.5),
        harness.Ratio("pipeline_spark_4_1", "pyspark", "headgate"),
    ],
    "under_comet": [
        harness.Ratio("under_comet", "comet", "headgate", goal=2),
        harness.Ratio("under_comet_one_side", "comet, one side", "headgate, one side", goal=1),
    ],
}


class Peer:
    """A session in a process of its own.

    Args:
        process: runs ``peer_program.py``.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version = self._answer()["ready"]

    def seconds(self, way: Job) -> float:
        return self._ask(way)["seconds"]

    def rows(self, way: Job) -> pa.Table:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            path = Path(folder) / "rows"
            self._ask(way, path=str(path))
            with pa.OSFile(str(path)) as file:
                return pa.ipc.open_file(file).read_all()

    def _ask(self, way: Job, **more: str) -> dict:
        order = {"headgate": way.headgate, "sides": way.sides, **more}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise PeerError(f"a session ended with {self._process.wait()}: its error is above")


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--only", choices=ONLY, help="by default all three")
    parser.add_argument("--scale", type=float, default=1, help="TPC-H's scale factor, by default 1")
    options = parser.parse_args(arguments)
    folder = tpch.lineitem(0.01 if options.quick else options.scale, parts=7)
    for part in [options.only] if options.only else ONLY:
        try:
            compare(part, folder, options.turns, quick=options.quick)
        except PeerError as error:
            print(f"no {part}: {error}")


def compare(part: str, folder: Path, turns: int, *, quick: bool) -> None:
    """Check that all ways of a part give the same rows, and time them."""
    ways = WAYS[part]
    with ExitStack() as stack:
        names = {way.session for way in ways.values()}
        peers = {name: stack.enter_context(started(name, folder)) for name in sorted(names)}
        run: dict[str, Callable[[], float]] = {}
        answers = {}
        if part == "pipeline_sail":
            cloudpickle.register_pickle_by_value(pipeline_functions)
            spark = session(f"local[{SLOTS}]")
            stack.callback(spark.stop)
            run["headgate"] = saving(lambda: pipeline.by_headgate(spark, folder))
            answers["headgate"] = pipeline.by_headgate(spark, folder).toArrow()
        for name, way in ways.items():
            peer = peers[way.session]
            run[name] = lambda peer=peer, way=way: peer.seconds(way)
            answers[name] = peer.rows(way)
        check(answers, pipeline.by_duckdb(folder)[1])
        versions = ", ".join(f"{name} {peer.version}" for name, peer in peers.items())
        rows = pipeline.rows_of(folder)
        harness.compare(
            part,
            f"TPC-H lineitem, {rows:,} rows in 7 files: revenue by supplier and month, two slots; {versions}",
            run,
            RATIOS[part],
            turns=turns,
            size=rows * pipeline.ROW_BYTES,
            quick=quick,
        )


def check(answers: dict[str, pa.Table], expected: pa.Table) -> None:
    """Compare all answers, row by row, with one that no contestant gave."""
    for name, found in answers.items():
        if not exact(found).equals(exact(expected)):
            raise SystemExit(f"{name} gives another answer than DuckDB")
    print(f"all {len(answers)} answers are DuckDB's, to 1/100 of a cent")


@contextmanager
def started(name: str, folder: Path) -> Iterator[Peer]:
    """Yield a session; end its process."""
    given = {"session": name, "folder": str(folder)}
    if name == "comet":
        given["jar"] = str(environments.downloaded("comet_jar.sh"))
    python = environments.environment(*packages_of(name))
    paths = os.pathsep.join(map(str, [ROOT, ROOT / "python"]))
    process = subprocess.Popen(
        [str(python), "-P", str(PROGRAM), json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    try:
        yield Peer(process)
        process.stdin.close()
        # Sail's server may wait for ever for its clients.
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def packages_of(name: str) -> tuple[str, Sequence[str]]:
    """Return the name of the environment of a session, and its packages."""
    environment = "sail" if name == "sail" else "comet"
    return environment, ENVIRONMENTS[environment]


if __name__ == "__main__":
    main(sys.argv[1:])
