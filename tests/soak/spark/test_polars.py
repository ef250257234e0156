"""Frames of polars as output of reduce. Polars keeps descriptors, so it has its own session."""

import pytest
from tests.kit.own_driver import drive

pytest.importorskip("polars")

BODY = """
def frames(batches):
    import polars as pl
    for batch in batches:
        frame = pl.from_arrow(batch).with_columns(
            name=pl.col("id").cast(pl.String),
            kind=pl.lit("a").cast(pl.Categorical),
            at=pl.from_epoch("k", time_unit="s").cast(pl.Datetime("ns")),
            small=pl.col("id").cast(pl.UInt32),
        )
        yield frame.select("at", "small", "kind", "name", "id")

schema = "id long, name string, kind string, at timestamp_ntz, small long"
out = exchange(numbers, by="id", reduce=frames, schema=schema, num_partitions=2)
rows = sorted(out.selectExpr("id", "name", "kind", "small", "unix_timestamp(at) as at").collect())
tell(
    right=[tuple(row)[:4] for row in rows] == [(n, str(n), "a", n) for n in range(ROWS)],
    seconds={row["at"] - rows[0]["at"] - row["id"] % 100 for row in rows} == {0},
)
"""


def test_frames_of_polars_are_taken(tmp_path):
    assert drive(BODY, "local[4]", tmp_path) == {"right": True, "seconds": True}
