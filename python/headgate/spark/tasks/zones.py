"""Labels times of Spark's batches with the time zone of their DataFrame. Comet labels all with UTC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

#: The zone in the text of a type.
_ZONE: Final = re.compile(r"tz=[^\]]*")


def in_zone(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of Spark; a time has the zone that it has in the schema. No moment changes.

    Args:
        batches: of Spark.
        schema: that their DataFrame has in this session.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    last = labelled = schema
    for batch in batches:
        if batch.schema != last:
            last = batch.schema
            labelled = pa.schema(map(_labelled, last, schema))
        if labelled == last:
            yield batch
            continue
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, labelled, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=labelled)


def _labelled(have: pa.Field, want: pa.Field) -> pa.Field:
    """Return a field with the other one's zones, if they differ by nothing else."""
    is_same = _ZONE.sub("", str(have.type)) == _ZONE.sub("", str(want.type))
    return have.with_type(want.type) if is_same else have
