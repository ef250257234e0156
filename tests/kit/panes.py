"""Aggregates with filters and distinct counts, and the state and rows of each task, for tests of windows."""

from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from tests.kit.windows import SCHEMA, WINDOWS, batch_of

from headgate.key_groups import key_group_range
from headgate.stream import Aggregate, KeyedStateBackend, SnapshotFolder, key_groups_of

DEAR = pc.field("price") > 2
AGGREGATES = (
    Aggregate("count", where=DEAR, name="dear"),
    Aggregate("count", "price", where=pc.field("at") > 7, name="after"),
    Aggregate("sum", "price", where=DEAR, name="dear_sum"),
    Aggregate("avg", "price", where=~DEAR, name="cheap_avg"),
    Aggregate("count_distinct", "price"),
    Aggregate("count_distinct", "user", where=DEAR, name="users"),
    Aggregate("approx_count_distinct", "price"),
    Aggregate("count"),
)
CHECKPOINTS = count(1)
#: The schema of keys.
KEYS = pa.schema([SCHEMA.field("user")])
FIXED = [name for name in WINDOWS if name != "session"]


def aggregated(rows):
    prices = [price for _, _, price in rows if price is not None]
    dear, cheap = [p for p in prices if p > 2], [p for p in prices if p <= 2]
    return (
        len(dear),
        sum(at > 7 and price is not None for _, at, price in rows),
        sum(dear) if dear else None,
        sum(cheap) / len(cheap) if cheap else None,
        len(set(prices)),
        len({u for u, _, price in rows if u is not None and price is not None and price > 2}),
        len(set(prices)),
        len(rows),
    )


def restored(operators, groups):
    """Return the state of operators, as far as it is of some key groups."""
    stores, checkpoint = [], next(CHECKPOINTS)
    for number, each in enumerate(operators):
        stores.append((SnapshotFolder(f"task{number}", fs._MockFileSystem()), checkpoint))
        each.backend.snapshot(checkpoint).write(stores[-1][0])
    return [KeyedStateBackend.restore(stores, key_groups=g) for g in groups]


def groups_of(parallelism):
    return [key_group_range(at, parallelism, 128) for at in range(parallelism)]


def by_task(rows, parallelism):
    """Return the rows of each task."""
    parts = [[] for _ in range(parallelism)]
    groups = key_groups_of(batch_of(rows).select(["user"]), 128)
    for row, group in zip(rows, groups, strict=True):
        (task,) = (at for at, mine in enumerate(groups_of(parallelism)) if group in mine)
        parts[task].append(row)
    return parts
