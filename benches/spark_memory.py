"""Memory of Python workers in kept exchanges, against a worker that only passes batches on.

The measure is the memory that belongs to a worker alone, anonymous and shared (``RssAnon`` and ``RssShmem``), at its peak in
any task, read at each batch. Files that a consumer maps do not count: they are the page cache's, which the kernel takes
back when it needs memory. Workers serve one task after another, so the bare ones come first. A worker may use its pool of
64 MiB and 64 MiB more than a bare one, whatever the partitions and the skew; the ratio is that sum over the memory of the
largest worker.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from benches import harness
from benches.spark import ROW_BYTES, ROWS, by_headgate, rows_of, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame

POOL, BESIDE = 64 << 20, 64 << 20
WIDE = 1_000
INPUTS = 8


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    less = 50 if options.quick else 1
    spark = session("local[2]")
    try:
        df = rows_of(spark, ROWS // less, INPUTS)
        skewed = df.selectExpr("id", "if(id % 10 < 9, 7L, key) AS key", "x", "name")
        cases: dict[str, Callable[[Callable], DataFrame]] = {
            "bare": lambda probe: df.mapInArrow(probe, df.schema),
            f"{WIDE // less:,} partitions": lambda probe: by_headgate(
                df, "kept", WIDE // less, map=probe, reduce=probe
            ),
            "nine of ten rows in one of 200": lambda probe: by_headgate(
                skewed, "kept", 200, map=probe, reduce=probe
            ),
        }
        found = {
            name: [largest(case) for _ in range(options.turns)] for name, case in cases.items()
        }
    finally:
        spark.stop()
    what = f"{ROWS // less:,} rows of {ROW_BYTES} bytes from {INPUTS} producers, pools of {POOL >> 20} MiB, local[2]"
    allowed = statistics.median(found["bare"]) + POOL + BESIDE
    harness.compare_memory("spark_memory", what, found, allowed, quick=options.quick)


def largest(case: Callable[[Callable], DataFrame]) -> int:
    """Run a plan; return the memory of its largest worker in bytes."""
    with TemporaryDirectory() as folder:
        case(partial(probed, Path(folder))).write.format("noop").mode("overwrite").save()
        return max(int(path.suffix[1:]) for path in Path(folder).iterdir())


def probed(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; leave a file whose name says how much memory the worker had at most."""
    import uuid

    most = own_bytes()
    for batch in batches:
        most = max(most, own_bytes())
        yield batch
    most = max(most, own_bytes())
    (folder / f"{uuid.uuid4().hex}.{most}").touch()


def own_bytes() -> int:
    """Return the memory that belongs to this process alone."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    sizes = (line.split()[1] for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return sum(map(int, sizes)) << 10
