"""Events of Nexmark, and the rows that the sink of a query has."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from benches.nexmark.events import KINDS
from benches.nexmark.queries import FOLDERS

from headgate._changes import change_signs, is_changing, without_changes
from headgate.source import NexmarkSource
from headgate.source import read as read_source

#: Midnight, for windows of a day, in ms since 1970.
MIDNIGHT = 1_436_918_400_000 + 86_400_000


def around_midnight(events):
    """Return the options of sources whose events take 50 seconds, with midnight in the middle."""
    return {"event_rate": events / 50, "start_time": MIDNIGHT - 25_000}


def all_events(events, **options):
    """Return the rows of each kind."""
    tables = {}
    for kind in KINDS:
        source = NexmarkSource(kind, events, **options)
        with read_source(source) as rows:
            tables[kind] = pa.Table.from_batches(list(rows), source.schema)
    return tables


def result_of(name, folder):
    """Return the rows that a query has written below a folder, changes of them too."""
    partitioning = None
    if name in FOLDERS:
        schema = pa.schema([(column, pa.string()) for column in FOLDERS[name]])
        partitioning = ds.partitioning(schema, flavor="hive")
    return ds.dataset(folder, partitioning=partitioning, format="parquet").to_table()


def after_changes(rows):
    """Return the rows that all changes leave, in whatever order they are.

    Raises:
        AssertionError: a row is taken away more often than it comes.
    """
    if not is_changing(rows.schema):
        return rows
    names = without_changes(rows.schema).names
    signs = change_signs(rows).cast(pa.int64())
    counted = rows.select(names).append_column("\0n", signs).group_by(names)
    counted = counted.aggregate([("\0n", "sum")])
    numbers = counted["\0n_sum"].to_numpy()
    never = counted.filter(pc.less(counted["\0n_sum"], 0))
    assert not len(never), f"taken away without having come: {never.slice(0, 3).to_pylist()}"
    return counted.select(names).take(np.repeat(np.arange(len(numbers)), numbers))
