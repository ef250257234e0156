"""Rows of two streams in one exchange: columns of one type share a column on the way, so that few are null.

Decision: ADR 0054.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.stream.graph.operator import Operator

#: Number of the stream that a row is of, in the first column on the way.
SIDE: Final = "side"


@dataclass(frozen=True, slots=True)
class Sides:
    """Two streams, and the schema of their rows on the way to one operator.

    Attributes:
        schemas: of the streams.
        keys: their key columns.
        schema: on the way: the number of the side, the keys, and all other columns.
        places: for each stream the position on the way of each of its columns.
    """

    schemas: tuple[pa.Schema, pa.Schema]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    schema: pa.Schema
    places: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def key_names(self) -> list[str]:
        """Names of the key columns on the way."""
        return list(self.schema.names[1 : 1 + len(self.keys[0])])

    @property
    def key_schema(self) -> pa.Schema:
        """The key columns, under the first stream's names."""
        return pa.schema([self.schemas[0].field(key) for key in self.keys[0]])

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each side that has some, with the number of the side."""
        numbers = np.asarray(batch.column(0).to_numpy())
        for side, schema in enumerate(self.schemas):
            mine = numbers == side
            if not mine.any():
                continue
            columns = [batch.column(place) for place in self.places[side]]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            yield side, rows if mine.all() else rows.filter(pa.array(mine))


def sides_of(
    first: pa.Schema, first_keys: Sequence[str], second: pa.Schema, second_keys: Sequence[str]
) -> Sides:
    """Return how rows of two streams travel, whose keys have the same types."""
    fields = [pa.field(SIDE, pa.int8())]
    fields += [pa.field(f"key_{at}", first.field(key).type) for at, key in enumerate(first_keys)]
    num_keys = len(first_keys)
    all_places = []
    for schema, keys in ((first, first_keys), (second, second_keys)):
        free = list(range(1 + num_keys, len(fields)))
        places = []
        for field in schema:
            if field.name in keys:
                places.append(1 + list(keys).index(field.name))
                continue
            place = next((at for at in free if fields[at].type == field.type), len(fields))
            if place == len(fields):
                fields.append(pa.field(f"column_{place}", field.type))
            else:
                free.remove(place)
            places.append(place)
        all_places.append(tuple(places))
    return Sides(
        (first, second),
        (tuple(first_keys), tuple(second_keys)),
        pa.schema(fields),
        (all_places[0], all_places[1]),
    )


class SideOperator(Operator):
    """Makes rows on the way of those of one stream.

    Args:
        side: 0 or 1.
        sides: both streams.
    """

    def __init__(self, side: int, sides: Sides) -> None:
        self._side, self._sides = side, sides
        #: Columns of the other stream alone, as long as the longest batch so far.
        self._blank = {
            place: pa.nulls(0, field.type)
            for place, field in enumerate(sides.schema)
            if place and place not in sides.places[side]
        }
        self._number = pa.array([], pa.int8())

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the rows with nulls in the columns of the other side alone."""
        rows, schema = batch.num_rows, self._sides.schema
        if rows > len(self._number):
            self._number = pa.array(np.full(rows, self._side, np.int8))
            self._blank = {at: pa.nulls(rows, schema.field(at).type) for at in self._blank}
        columns = {place: nulls.slice(0, rows) for place, nulls in self._blank.items()}
        columns |= dict(zip(self._sides.places[self._side], batch.columns, strict=True))
        columns[0] = self._number.slice(0, rows)
        arrays = [columns[place] for place in range(len(schema))]
        self._context.emit(pa.RecordBatch.from_arrays(arrays, schema=schema), None)
