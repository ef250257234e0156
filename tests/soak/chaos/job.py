"""The keyed job of a run, and the check of its rows. Its functions travel to workers by value."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.soak.chaos.plan import KEYS

#: Factor that spreads the ids over the keys.
_FACTOR = 2_654_435_761


def build(spark, plan, folder, mutation=None):
    """Return the DataFrame whose action is the run.

    Args:
        spark: the session.
        plan: plan of the run.
        folder: folder in which tasks record how many rows they have processed.
        mutation: deliberate damage in the consumers, ``drop`` or ``twice``.
    """
    from pyspark.sql.functions import spark_partition_id

    from headgate.spark import exchange

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(plan.batch_rows))
    rows = spark.range(0, plan.rows, 1, plan.producers).selectExpr(
        "id", f"id * {_FACTOR} % {KEYS} as k", f"repeat(cast(id as string), {plan.width}) as s"
    )
    marks = {
        role: (str(folder / role), plan.moment.at if plan.moment.name == role else 0)
        for role in ("producer", "consumer")
    }
    out = exchange(
        rows,
        by="k",
        map=_mapper(plan.pace_ms / 1000, marks["producer"]),
        reduce=_reducer(plan.reduce, plan.drag_ms / 1000, marks["consumer"], mutation),
        num_partitions=plan.consumers,
        memory="8m",
        segment_size="16k",
        schema=rows.schema,
    ).withColumn("p", spark_partition_id())
    return out.repartition(3, "id") if plan.shuffle else out


def _mapper(pace, mark):
    path, limit = mark

    def mapper(batches):
        import time
        from pathlib import Path

        seen = 0
        for batch in batches:
            time.sleep(pace)
            seen += batch.num_rows
            if limit and seen >= limit:
                Path(path).touch()
            yield batch

    return mapper


def _reducer(manner, drag, mark, mutation):
    path, limit = mark
    if manner == "none" and not limit and mutation is None:
        return None

    def spoiled(batches):
        done = mutation is None
        for batch in batches:
            if not done and batch.num_rows:
                done = True
                if mutation == "drop":
                    continue
                yield batch
            yield batch

    def paced(batches):
        import time
        from pathlib import Path

        seen = 0
        for batch in batches:
            time.sleep(drag)
            seen += batch.num_rows
            if limit and seen >= limit:
                Path(path).touch()
            yield batch

    def reducer(batches):
        rows = spoiled(paced(batches))
        yield from list(rows) if manner == "late" else rows

    return reducer


def places(spark, consumers):
    """Return the partition that Spark's own ``repartition`` gives each key."""
    from pyspark.sql.functions import spark_partition_id

    keys = spark.range(0, KEYS, 1, 1).selectExpr("id as k").repartition(consumers, "k")
    found = keys.select("k", spark_partition_id().alias("p")).collect()
    return {row["k"]: row["p"] for row in found}


def wrong_rows(plan, table, home):
    """Return a description of the error in a result; empty if it is right.

    Args:
        plan: plan of the run.
        table: columns ``id``, ``k``, ``s``, and ``p`` for the partition of the row.
        home: key -> the partition in which it belongs.
    """
    ids = table["id"].to_numpy()
    counts = np.bincount(ids, minlength=plan.rows)
    missing, twice = int((counts == 0).sum()), int((counts > 1).sum())
    if len(counts) > plan.rows:
        return f"{int(counts[plan.rows :].sum())} rows that were never sent"
    if missing or twice:
        return f"{missing} rows are missing, {twice} are duplicates"
    texts = pc.binary_repeat(pc.cast(table["id"], pa.string()), plan.width)
    keys = np.array_equal(table["k"].to_numpy(), ids * _FACTOR % KEYS)
    if not (keys and pc.all(pc.equal(table["s"], texts)).as_py()):
        return "a row has the key or payload of another row"
    return _misplaced(table, home)


def _misplaced(table, home):
    pairs = set(zip(table["k"].to_pylist(), table["p"].to_pylist(), strict=True))
    if len(pairs) != len({key for key, _ in pairs}):
        return "a key came out of more than one partition"
    moved = [key for key, place in pairs if place != home[key]]
    if moved:
        return f"keys in wrong partitions: {sorted(moved)[:8]}"
    return ""
