"""Functions of the bench ``jobs`` beside those of the cookbook: from batches of Arrow to batches of Arrow, as ``mapInArrow`` takes them.

Every function is called once per partition, by all contestants. Each ``reduce`` gets all rows of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]

#: Centroids of the points, which lie in the plane.
CENTROIDS = np.random.default_rng(7).uniform(0, 1000, (64, 2))


def table(batches: Batches) -> pa.Table | None:
    """Return all batches as a table of whole columns; None if there is no row."""
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found).combine_chunks() if found else None


def columns(**arrays: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def numbers(rows: pa.Table, name: str) -> np.ndarray:
    return rows.column(name).combine_chunks().to_numpy(zero_copy_only=False)


def latest(batches: Batches) -> Batches:
    """The last click of each user."""
    rows = table(batches)
    if rows is None:
        return
    order = np.lexsort((numbers(rows, "page"), numbers(rows, "second"), numbers(rows, "user")))
    users = numbers(rows, "user")[order]
    last = np.append(users[1:] != users[:-1], True)
    yield from rows.take(order[last]).to_batches()


def words(batches: Batches) -> Batches:
    """Map: the words of each batch of texts, each with its number."""
    for batch in batches:
        found = pc.list_flatten(pc.ascii_split_whitespace(pc.utf8_lower(batch.column("text"))))
        counted = pc.value_counts(found)
        yield columns(word=counted.field("values"), times=counted.field("counts"))


def total_of_words(batches: Batches) -> Batches:
    rows = table(batches)
    if rows is not None:
        counted = rows.group_by("word").aggregate([("times", "sum")])
        yield from counted.rename_columns(["word", "times"]).to_batches()


def nearest(batches: Batches) -> Batches:
    """Map: number and sums of the points of a batch that are nearest to each centroid."""
    for batch in batches:
        points = np.column_stack([numbers(pa.Table.from_batches([batch]), name) for name in "xy"])
        distances = ((points[:, None, :] - CENTROIDS[None, :, :]) ** 2).sum(axis=2)
        mine = distances.argmin(axis=1)
        count = np.bincount(mine, minlength=len(CENTROIDS))
        # In hundredths, so that sums do not depend on how the points are cut into batches.
        whole = np.rint(points * 100)
        yield columns(
            centroid=np.arange(len(CENTROIDS)),
            points=count,
            x=np.bincount(mine, whole[:, 0], minlength=len(CENTROIDS)).astype(np.int64),
            y=np.bincount(mine, whole[:, 1], minlength=len(CENTROIDS)).astype(np.int64),
        )


def moved(batches: Batches) -> Batches:
    """The sums of each centroid over all batches."""
    rows = table(batches)
    if rows is not None:
        sums = rows.group_by("centroid").aggregate([("points", "sum"), ("x", "sum"), ("y", "sum")])
        yield from sums.rename_columns(["centroid", "points", "x", "y"]).to_batches()
