"""Rows as records of Kafka, and a producer that reports what was not delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from headgate._changes import CHANGE_TYPE, is_changing, last_changes
from headgate._kafka import LOG, error_text
from headgate._times import millis_of, scale_of
from headgate.errors import SchemaMismatchError, SinkError

#: Seconds for callbacks to run while the producer's queue is full, and between looks at a flush.
_POLL: Final = 0.1
_TAKES: Final = "value (binary or string), and optionally key, topic, partition, timestamp, headers"


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
            *(pa.types.is_string, pa.types.is_large_string, pa.types.is_null),
        )
    )


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return False
    fields = [field.name for field in kind.value_type]
    return fields == ["key", "value"]


#: column -> a test of its type.
_COLUMNS: Final = {
    "value": _is_text,
    "key": _is_text,
    "topic": pa.types.is_string,
    "partition": pa.types.is_integer,
    "timestamp": lambda kind: scale_of(kind) is not None,
    "headers": _is_headers,
    CHANGE_TYPE: lambda kind: _is_text(getattr(kind, "value_type", kind)),
}


def check_schema(schema: pa.Schema) -> None:
    """Check that rows can be records.

    Raises:
        SchemaMismatchError: there is no column ``value``, an unknown one, or one of another type.
    """
    wrong = [f for f in schema if not _COLUMNS.get(f.name, lambda _: False)(f.type)]
    if wrong or "value" not in schema.names or len(set(schema.names)) < len(schema.names):
        bad = ", ".join(f"{field.name}: {field.type}" for field in wrong) or "no column value"
        raise SchemaMismatchError(
            f"the sink of Kafka cannot write these columns: {bad}",
            asked=_TAKES,
            have=", ".join(f"{field.name}: {field.type}" for field in schema),
            remedy="map the rows to a batch with a column value",
        )
    if is_changing(schema) and "key" not in schema.names:
        raise SchemaMismatchError(
            f"rows with a column {CHANGE_TYPE} are changes, and records without a key cannot be replaced",
            have=", ".join(schema.names),
            remedy="map() that makes a column key of the columns that tell rows apart",
        )


def last_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last row of each key of a batch of changes: a tombstone for a row that is gone."""
    there, gone = last_changes(pa.Table.from_batches([batch]), ["key"])
    at = gone.column_names.index("value")
    gone = gone.set_column(
        at, gone.schema.field(at), pa.nulls(gone.num_rows, gone.schema.field(at).type)
    )
    rows = pa.concat_tables([there, gone])
    return pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks())


def records_of(batch: pa.RecordBatch, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments of ``Producer.produce`` for each row; nulls are left out."""
    if is_changing(batch.schema):
        batch = last_records(batch)
    columns = {
        field.name: column for field, column in zip(batch.schema, batch.columns, strict=True)
    }
    if "timestamp" in columns:
        columns["timestamp"] = millis_of(columns["timestamp"])
    names = list(columns)
    for row in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        record = {n: v for n, v in zip(names, row, strict=True) if v is not None or n == "value"}
        if "headers" in record:
            record["headers"] = [(header["key"], header["value"]) for header in record["headers"]]
        record.setdefault("topic", topic)
        yield record


class Producing:
    """A producer, and the first error of a delivery.

    Args:
        properties: of librdkafka.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - optional

        self.producer: Any = Producer(dict(properties), logger=LOG)
        self._error: SinkError | None = None

    def produce(self, batch: pa.RecordBatch, topic: str) -> None:
        """Queue the rows of a batch; waits while the queue is full.

        Raises:
            SinkError: an earlier row was not delivered, or a row cannot be a record.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

        for record in records_of(batch, topic):
            while True:
                try:
                    self.producer.produce(**record, on_delivery=self._delivered)
                except BufferError:
                    self.producer.poll(_POLL)
                    self._check()
                except KafkaException as error:
                    raise SinkError(f"Kafka takes no record: {error_text(error)}") from error
                else:
                    break
        self.producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until all rows are delivered, or one of them is given up.

        librdkafka gives a row up after ``delivery.timeout.ms``, 5 minutes unless it is set.

        Raises:
            SinkError: a row was not delivered.
        """
        while self.producer.flush(_POLL) and self._error is None:
            pass
        self._check()

    def close(self) -> None:
        """Drop what was not delivered, and close the connections."""
        if self.producer is not None:
            self.producer.purge()
            self.producer.flush(_POLL)
            self.producer = None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = SinkError(
                f"a record for topic {message.topic()!r} was not delivered: {error_text(error)}",
                details={"topic": message.topic(), "error": error.name()},
            )

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
