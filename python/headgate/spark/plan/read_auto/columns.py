"""Compares a column of a Parquet file with Spark's column: does pyarrow read from it what Spark reads?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.read_auto.skipping import writer_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source.files.footer import Footer

#: Writer of which INT96 is known to count the nanoseconds of a day from 0.
_WRITER_OF_INT96: Final = "parquet-mr"
_INT96: Final = "INT96"
#: Names of the repeated group and the element of a list, by which Spark and pyarrow find the same elements.
_LISTS: Final = {
    ("list", "element"),
    ("list", "item"),
    ("bag", "array"),
    ("bag", "array_element"),
}
#: Names of the repeated group of a map.
_MAPS: Final = frozenset({"key_value", "map"})


@dataclass(frozen=True, slots=True)
class Unmarked:
    """Says for files without Spark's version if Spark takes days and times for ones of today's calendar.

    Attributes:
        int96: for INT96.
        others: for dates and other timestamps.
    """

    int96: bool
    others: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a file's schema.

    Attributes:
        names: names of the groups around it, from the top-level column on, and its own.
        physical: physical type.
        number: index of the leaf in the file.
    """

    names: tuple[str, ...]
    physical: str
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The columns of a file, and the notes of its writer.

    Attributes:
        schema: Arrow's schema of the file; INT96 columns are timestamps in UTC.
        leaves: in their order.
        metadata: notes of the writer.
        created_by: name and version of the writer.
        encoding: one by which pyarrow may fail; empty if there is none.
    """

    schema: pa.Schema
    leaves: Sequence[Leaf]
    metadata: Mapping[bytes, bytes]
    created_by: str
    encoding: str = ""

    @classmethod
    def of(cls, footer: Footer, encoding: str) -> Layout:
        """Return the layout of a file."""
        metadata = footer.metadata
        leaves = []
        for number in range(len(metadata.schema)):
            column = metadata.schema.column(number)
            leaves.append(Leaf(tuple(column.path.split(".")), column.physical_type, number))
        notes = metadata.metadata or {}
        return cls(footer.schema, leaves, notes, metadata.created_by or "", encoding)

    def counts_by_today(self, unmarked: Unmarked, *, is_int96: bool) -> bool:
        """Return True if Spark takes the days and times for ones of today's calendar."""
        from headgate.source.files.calendar import is_of_today  # noqa: PLC0415 - imports pyarrow

        is_of = is_of_today(self.metadata, is_int96=is_int96)
        if is_of is None:
            return unmarked.int96 if is_int96 else unmarked.others
        return is_of

    def doubtful_leaves(
        self, columns: pa.Schema, unmarked: Unmarked, *, widens: bool = False
    ) -> list[tuple[str, Leaf]]:
        """Return columns and their leaves whose days and times are the same in Spark only if none is old.

        Args:
            columns: columns that are read, with the types in which Spark gives them to Python.
            unmarked: files that do not say which version of Spark wrote them.
            widens: True if the types of the file may be narrower.

        Raises:
            Unsure: Pyarrow may read a column otherwise than Spark.
        """
        from headgate.source.files.format import plain  # noqa: PLC0415 - imports pyarrow

        if self.encoding:
            raise Unsure(f"{writer_of(self.created_by)} has encoded values by {self.encoding}")
        spellings: dict[str, list[int]] = {}
        for place, name in enumerate(self.schema.names):
            spellings.setdefault(name.casefold(), []).append(place)
        starts, following = [], 0
        for field in self.schema:
            starts.append(following)
            following += _width(field.type)
        old: list[tuple[str, Leaf]] = []
        for field in columns:
            places = spellings.get(field.name.casefold())
            if places is None:
                continue  # null in both
            spelt = [self.schema.names[place] for place in places]
            if spelt != [field.name]:
                raise Unsure(f"a file has the columns {', '.join(spelt)} for {field.name!r}")
            place = places[0]
            kind, start = plain(self.schema.field(place).type), starts[place]
            leaves = self.leaves[start : start + _width(kind)]
            # A name with dots has more parts than one.
            depth = field.name.count(".") + 1
            if any(".".join(leaf.names[:depth]) != field.name for leaf in leaves) or not leaves:
                raise Unsure(f"column {field.name!r} is nested in a file")
            column = _Column(self, unmarked, widens, field.name, kind, field.type)
            old += [(field.name, leaf) for leaf in column.old(kind, field.type, leaves, depth)]
        self._check_conversion(columns)
        return old

    def _check_conversion(self, columns: pa.Schema) -> None:
        """Raise Unsure if the reader of the workers does not convert the columns to Spark's types."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        from headgate.source.files.conform import conformer  # noqa: PLC0415 - imports pyarrow

        schema = pa.schema([field for field in self.schema if field.name in columns.names])
        try:
            conform = conformer(schema, columns, "a file")
            conform(
                pa.RecordBatch.from_arrays(
                    [pa.nulls(0, field.type) for field in schema], schema=schema
                )
            )
        except HeadgateError as error:
            raise Unsure(str(error).partition("\n")[0]) from error


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file and of Spark.

    Attributes:
        layout: of the file.
        unmarked: files that do not say which version of Spark wrote them.
        name: of the column.
        in_file: its type in the file.
        in_spark: its type in Spark.
    """

    layout: Layout
    unmarked: Unmarked
    widens: bool
    name: str
    in_file: pa.DataType
    in_spark: pa.DataType

    def old(
        self, kind: pa.DataType, wanted: pa.DataType, leaves: Sequence[Leaf], depth: int
    ) -> list[Leaf]:
        """Return the leaves of a part of the column that have to be looked at for old days.

        Args:
            kind: type of the part in the file.
            wanted: type of the part in Spark.
            leaves: of the part.
            depth: number of the names of a leaf that are around the part, with its own.
        """
        import pyarrow.types as pt  # noqa: PLC0415 - slow to import

        if pt.is_struct(kind) and pt.is_struct(wanted):
            return self._old_of_fields(kind, wanted, leaves, depth)
        if pt.is_map(kind) and pt.is_map(wanted):
            names = {leaf.names[depth : depth + 2] for leaf in leaves}
            # Spark finds key and value by their places, and pyarrow by their names or places.
            if len(leaves) < 2 or not all(
                len(pair) == 2 and pair[0] in _MAPS and pair[1] in {"key", "value"}
                for pair in names
            ):
                raise self._unsure("is a map of an old form")
            keys = _width(kind.key_type)
            return [
                *self.old(kind.key_type, wanted.key_type, leaves[:keys], depth + 2),
                *self.old(kind.item_type, wanted.item_type, leaves[keys:], depth + 2),
            ]
        if (pt.is_list(kind) or pt.is_large_list(kind)) and pt.is_list(wanted):
            if not all(leaf.names[depth : depth + 2] in _LISTS for leaf in leaves):
                raise self._unsure("is a list of an old form")
            return self.old(kind.value_type, wanted.value_type, leaves, depth + 2)
        if len(leaves) != 1 or len(leaves[0].names) != depth:
            raise self._unsure()
        return self._old_of_leaf(kind, wanted, leaves[0])

    def _old_of_fields(
        self, kind: Any, wanted: Any, leaves: Sequence[Leaf], depth: int
    ) -> list[Leaf]:
        """Look at the fields of a struct that Spark reads."""
        parts: dict[str, tuple[pa.DataType, Sequence[Leaf]]] = {}
        start = 0
        for inner in kind:
            parts[inner.name] = (inner.type, leaves[start : start + _width(inner.type)])
            start += _width(inner.type)
        spellings = {name.casefold() for name in parts}
        if (
            len(spellings) < kind.num_fields
            or len({inner.name.casefold() for inner in wanted}) < wanted.num_fields
        ):
            raise self._unsure("has fields with the same name")
        if not any(inner.name in parts for inner in wanted):
            # If no field is there, Spark's versions and modes differ in which structs are null.
            raise self._unsure("has none of the fields of a struct")
        old = []
        for inner in wanted:
            if inner.name not in parts:
                if inner.name.casefold() in spellings:
                    raise self._unsure(f"has another spelling of the field {inner.name!r}")
                continue  # null in both
            part, inside = parts[inner.name]
            end = depth + inner.name.count(".") + 1
            if any(".".join(leaf.names[depth:end]) != inner.name for leaf in inside):
                raise self._unsure()
            old += self.old(part, inner.type, inside, end)
        return old

    def _old_of_leaf(self, kind: Any, wanted: Any, leaf: Leaf) -> list[Leaf]:
        import pyarrow.types as pt  # noqa: PLC0415

        is_int96 = leaf.physical == _INT96
        if is_int96:
            if not pt.is_timestamp(wanted) or wanted.tz is None:
                raise self._unsure()
            if not self.layout.created_by.startswith(_WRITER_OF_INT96):
                raise self._unsure(
                    f"has times of 96 bits by {self.layout.created_by or 'an unknown writer'}"
                )
            if not self.layout.counts_by_today(self.unmarked, is_int96=True):
                raise self._unsure("has times of 96 bits, maybe of before 1900 by the old calendar")
            return []
        if not _is_alike(kind, wanted) and not (self.widens and _is_narrower(kind, wanted)):
            raise self._unsure()
        # Spark takes times without a zone as they are.
        is_affected = pt.is_date(wanted) or (pt.is_timestamp(wanted) and wanted.tz is not None)
        if not is_affected or self.layout.counts_by_today(self.unmarked, is_int96=False):
            return []
        return [leaf]

    def _unsure(self, what: str = "") -> Unsure:
        if what:
            return Unsure(f"column {self.name!r} of a file {what}")
        return Unsure(
            f"column {self.name!r} is {self.in_file} in a file, and {self.in_spark} in Spark"
        )


def _is_alike(in_file: pa.DataType, in_spark: pa.DataType) -> bool:
    import pyarrow.types as pt  # noqa: PLC0415

    if pt.is_timestamp(in_file) and pt.is_timestamp(in_spark):
        return in_file.unit in {"ms", "us"} and (in_file.tz is None) == (in_spark.tz is None)
    same_values = {"large_string": "string", "string_view": "string"}
    same_values |= {"large_binary": "binary", "binary_view": "binary"}
    if same_values.get(str(in_file)) == str(in_spark):
        return True
    return bool(in_file.equals(in_spark)) and not pt.is_nested(in_file)


def _is_narrower(in_file: Any, in_spark: Any) -> bool:
    """Return True for a whole number, float or decimal that the other type has too, as it is."""
    import pyarrow.types as pt  # noqa: PLC0415

    if pt.is_signed_integer(in_file) and pt.is_signed_integer(in_spark):
        return bool(in_file.bit_width < in_spark.bit_width)
    if pt.is_decimal128(in_file) and pt.is_decimal128(in_spark):
        digits = in_spark.precision - in_spark.scale
        return bool(in_file.scale <= in_spark.scale and in_file.precision - in_file.scale <= digits)
    return bool(pt.is_float32(in_file) and pt.is_float64(in_spark))


def _width(kind: Any) -> int:
    """Return the number of leaves of a type."""
    import pyarrow.types as pt  # noqa: PLC0415

    if pt.is_struct(kind):
        return sum(_width(inner.type) for inner in kind)
    if pt.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    value = getattr(kind, "value_type", None)
    return 1 if value is None or pt.is_dictionary(kind) else _width(value)
