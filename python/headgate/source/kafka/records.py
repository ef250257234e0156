"""Records of Kafka as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: All columns; ``timestamp_type`` is 0 for the producer's time and 1 for the broker's, as in Spark.
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.int8()),
        pa.field("headers", _HEADERS),
    ]
)

#: column -> the function from messages of one partition to its values. ``timestamp()`` is (type, ms).
_COLUMNS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "key": lambda messages: [m.key() for m in messages],
    "value": lambda messages: [m.value() for m in messages],
    "topic": lambda messages: pa.repeat(messages[0].topic(), len(messages)),
    "partition": lambda messages: pa.repeat(
        pa.scalar(messages[0].partition(), pa.int32()), len(messages)
    ),
    "offset": lambda messages: [m.offset() for m in messages],
    "timestamp": lambda messages: [t if kind else None for kind, t in map(_time, messages)],
    "timestamp_type": lambda messages: [
        kind - 1 if kind else None for kind, _ in map(_time, messages)
    ],
    "headers": lambda messages: [m.headers() for m in messages],
}


def batch_of(messages: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the messages of one partition as a batch with some of the columns of :data:`SCHEMA`."""
    columns = []
    for field in schema:
        values = _COLUMNS[field.name](messages)
        is_array = isinstance(values, pa.Array)
        columns.append(values if is_array else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def latest_time(messages: Sequence[Any]) -> int | None:
    """Return the latest time of messages in ms since 1970; None if none has a time."""
    return max((time for kind, time in map(_time, messages) if kind), default=None)


def _time(message: Any) -> tuple[int, int]:
    kind_and_time: tuple[int, int] = message.timestamp()
    return kind_and_time
