"""Functions of the pipeline on TPC-H's lineitem, which all its contestants call, also in environments of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ["l_suppkey", "l_extendedprice", "l_discount", "l_shipdate"]
MAPPED = "supplier long, month int, revenue double"


def revenue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map: supplier, month and revenue of each row."""
    for batch in batches:
        price = batch["l_extendedprice"].cast(pa.float64())
        discount = batch["l_discount"].cast(pa.float64())
        date = batch["l_shipdate"]
        month = pc.add(pc.multiply(pc.year(date), 100), pc.month(date)).cast(pa.int32())
        yield pa.record_batch(
            [batch["l_suppkey"], month, pc.multiply(price, pc.subtract(1.0, discount))],
            names=["supplier", "month", "revenue"],
        )


def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reduce: the revenue of each supplier and month; this partition has all rows of its suppliers."""
    found = list(batches)
    if not found:
        return
    sums = pa.Table.from_batches(found).group_by(["supplier", "month"], use_threads=False)
    grouped = sums.aggregate([("revenue", "sum")])
    names = ["supplier", "month", "revenue"]
    yield from (
        grouped.rename_columns([name.removesuffix("_sum") for name in grouped.column_names])
        .select(names)
        .to_batches()
    )


def totals_of_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map and reduce in one: the revenue of each supplier and month of the rows of the table."""
    yield from totals(revenue(batches))


def exact(table: pa.Table) -> pa.Table:
    """Return supplier, month and revenue, sorted; revenue in units of 1/10,000, which makes it whole."""
    revenue = pc.round(pc.multiply(table["revenue"].cast(pa.float64()), 1e4)).cast(pa.int64())
    columns = [table["supplier"].cast(pa.int64()), table["month"].cast(pa.int64()), revenue]
    plain = pa.table(columns, names=["supplier", "month", "revenue"])
    return plain.sort_by([("supplier", "ascending"), ("month", "ascending")]).combine_chunks()
