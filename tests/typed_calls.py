"""Calls that type checkers accept, and calls that they refuse.

`make check` runs mypy over this file: a call that it must refuse has a comment, and mypy complains of a
comment that silences nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions

import headgate as hg
from headgate.spark import Input, exchange, iterate, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from headgate.sink import Sink
    from headgate.source import Source


def by_batch(batches: hg.Batches) -> Iterator[pa.RecordBatch]:
    yield from batches


def at_once(batches: hg.Batches) -> pa.Table:
    return batches.read_all()


def as_pandas(batches: hg.Batches) -> Any:
    return batches.read_all().to_pandas()


def listed(batches: hg.Batches) -> list[pa.RecordBatch]:
    return list(batches)


def of_two(left: hg.Batches, right: hg.Batches) -> pa.Table:
    return pa.concat_tables([left.read_all(), right.read_all()])


def by_row(batch: pa.RecordBatch) -> list[int]:
    return [0] * batch.num_rows


def accepted(df: DataFrame, source: Source[pa.RecordBatch, Any, Any], sink: Sink) -> None:
    exchange(df, "user", by_batch, at_once, df.schema, 4)
    exchange(df, by=["user", functions.col("at")], reduce=listed, schema="n long")
    exchange(
        df, by=functions.lower("user"), reduce=as_pandas, schema=pa.schema([("n", pa.int64())])
    )
    exchange(df, by=hg.BroadcastSelector(), memory="128m", consumer_timeout=5.0, read="auto")
    exchange(df, by=by_row, sort_within="at", map_schema=None, compression="lz4")
    exchange(source, reduce=hg.per_key("user", lambda group: group), schema=df.schema)
    exchange([df, source, Input(df, by="a.k", map=by_batch)], "k", reduce=of_two, schema="n long")
    exchange(df, by="user", combine=at_once, reduce=at_once, schema="n long", num_partitions="auto")
    exchange([df, Input(df, broadcast=True)], reduce=of_two, schema="n long")
    write(df, sink, by="user", sort_within=["user", "at"], batch_bytes="1m")
    iterate(
        Input(df, map=by_batch),
        source,
        by="page",
        send=of_two,
        update=of_two,
        message_schema="page long",
        rounds=3,
        message_by=["page"],
        delta=True,
        memory="128m",
    )


def refused(df: DataFrame, sink: Sink) -> None:
    exchange(df, by=5)  # type: ignore[arg-type]
    exchange(df, by=["user", 5])  # type: ignore[list-item]
    exchange(df, by="user", memroy="128m")  # type: ignore[call-arg]
    exchange(df, by="user", mode="kepd")  # type: ignore[arg-type]
    exchange(df, by="user", memory=[1])  # type: ignore[arg-type]
    exchange(df, by="user", reduce=lambda batches: None, schema="n long")  # type: ignore[arg-type,return-value]
    exchange(df, by="user", sort_within=5)  # type: ignore[arg-type]
    exchange(5)  # type: ignore[arg-type]
    Input(df, by=5)  # type: ignore[arg-type]
    write(df, sink, partition="user")  # type: ignore[call-arg]
    iterate(df, by="page", send=at_once, update=of_two, message_schema="n long")  # type: ignore[call-arg]
    iterate(df, by="a", send=at_once, update=of_two, message_schema="a long", rounds="3")  # type: ignore[arg-type]
    iterate(df, by="a", send=at_once, update=of_two, message_schema="a long", rounds=3, until="end")  # type: ignore[arg-type]
