"""The keys of an exchange: columns, fields of columns, and what Spark computes from columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate._matches import close_matches
from headgate.errors import OptionError, UnknownColumnError
from headgate.spark.schema import unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

#: A column, a field by the names that lead to it, or what only Spark can compute.
Key: TypeAlias = "str | tuple[str, ...] | Column"

#: What Spark prints for a column or a field, unless its name is unusual.
_NAME: Final = re.compile(r"[^\W\d][\w.]*")
#: What Spark prints for ``df.a.k``.
_EXTRACTED: Final = re.compile(r"([^\[\]']+)((?:\['[^\[\]']+'\])+)")
#: A part of a name in Spark's notation: between backquotes, or up to the next dot.
_PART: Final = re.compile(r"`((?:[^`]|``)+)`(?:\.|$)|([^.`]+)(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that an argument may name.

    Attributes:
        schema: their schema.
        case_sensitive: Spark's ``spark.sql.caseSensitive``.
        of: owner of the schema for the error text, such as "the input".
        argument: ``"by"``, ``"sort_within"`` or ``"per_key"``.
        not_computed: why Spark cannot compute a column from others here; empty if it can.
    """

    schema: StructType
    case_sensitive: bool
    of: str
    argument: str = "by"
    not_computed: str = ""

    def keys(self, names: Iterable[Key]) -> list[Key]:
        """Return the keys, with names spelt as in the schema.

        ``a.k`` is the column of this name; without such a column it is the field ``k`` of the column
        ``a``, as in Spark.

        Raises:
            UnknownColumnError: No column has the name, or more than one has it.
            UnsupportedTypeError: A column has a type that cannot be hashed, or sorted.
            OptionError: A key is more than a name, and Spark cannot compute it here.
        """
        return [self._key(name) for name in names]

    def _key(self, name: Key) -> Key:
        if isinstance(name, (str, tuple)):
            return self._named(name)
        text = key_text(name)
        extracted = _EXTRACTED.fullmatch(text)
        try:
            if extracted is None:
                return self._named(text)
            return self._named((extracted[1], *extracted[2][2:-2].split("']['")))
        except UnknownColumnError as error:
            if _NAME.fullmatch(text):
                raise
            if not self.not_computed:
                return name
            raise OptionError(
                f"{self.argument}={text} is more than the name of a column, and {self.not_computed}",
                asked=f"{self.argument}={name}",
                remedy=f'add a column, as by df.withColumn("key", ...), and give {self.argument}="key"',
            ) from error

    def _named(self, name: str | tuple[str, ...]) -> str | tuple[str, ...]:
        text = name if isinstance(name, str) else ".".join(name)
        names: list[str] = []
        kind: Any = self.schema
        for part in self._path(name):
            if not hasattr(kind, "fields"):
                above = ".".join(names)
                raise UnknownColumnError(
                    f"column {above!r} has no fields, as its type is {kind.simpleString()}",
                    asked=f"{self.argument}={text!r}",
                    remedy=f"{self.argument}={above!r}",
                    details={"column": text, "columns": self.schema.names, "close": [above]},
                )
            field = self._field(kind, part, names, text)
            names.append(field.name)
            kind = field.dataType
        fits, what = (
            (_is_sortable, "be sorted by")
            if self.argument == "sort_within"
            else (_is_hashable, "be a key")
        )
        if not fits(kind):
            raise unsupported(".".join(names), kind, what)
        return names[0] if len(names) == 1 else tuple(names)

    def _path(self, name: str | tuple[str, ...]) -> Sequence[str]:
        if isinstance(name, tuple):
            return name
        path = _parts(name)
        is_column = self._fitting(self.schema, name) or not path
        return (name,) if is_column or not self._fitting(self.schema, path[0]) else path

    def _field(self, struct: StructType, name: str, above: Sequence[str], text: str) -> StructField:
        """Return a column, or the field of a struct."""
        fits = self._fitting(struct, name)
        if len(fits) == 1:
            return fits[0]
        what = "field" if above else "column"
        of = f"column {'.'.join(above)!r} of {self.of}" if above else self.of
        near = [".".join((*above, x)) for x in ([] if fits else close_matches(name, struct.names))]
        twice = 'rename one of them · spark.conf.set("spark.sql.caseSensitive", True)'
        raise UnknownColumnError(
            f"there is {'more than one' if fits else 'no'} {what} {name!r} in {of}",
            asked=f"{self.argument}={text!r}",
            have=", ".join(struct.names) or f"no {what}s",
            remedy=twice if fits else " · ".join(f"{self.argument}={column!r}" for column in near),
            details={"column": text, "columns": struct.names, "close": near},
        )

    def _fitting(self, struct: StructType, name: str) -> list[StructField]:
        same = str if self.case_sensitive else str.casefold
        return [field for field in struct.fields if same(field.name) == same(name)]


def key_text(key: Key) -> str:
    """Return a key as text for people."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return ".".join(key)
    # Of a mere reference Spark prints the name.
    return str(key).removeprefix("Column<'").removesuffix("'>")


def is_computed(key: Key) -> bool:
    """Return True if only Spark can compute the key."""
    return not isinstance(key, (str, tuple))


def for_spark(key: Key) -> str | Column:
    """Return a key as ``DataFrame.repartition`` takes it."""
    if isinstance(key, str):
        return _quoted(key)
    return ".".join(map(_quoted, key)) if isinstance(key, tuple) else key


def type_of(schema: StructType, key: str | tuple[str, ...]) -> str:
    """Return the type of a key that is not computed, in Spark's words."""
    kind: Any = schema
    for name in (key,) if isinstance(key, str) else key:
        kind = kind[name].dataType
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    # Without the quotes Spark would take the name "a.b" for a field of the column "a".
    return "`" + name.replace("`", "``") + "`"


def _parts(name: str) -> list[str]:
    """Return the names in a name with dots; nothing if it is not one in Spark's notation."""
    parts, at = [], 0
    while at < len(name):
        part = _PART.match(name, at)
        if part is None:
            return []
        quoted, plain = part.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = part.end()
    return [] if name.endswith(".") else parts


def _is_hashable(kind: DataType) -> bool:
    from pyspark.sql import types  # noqa: PLC0415 - pyspark only where Spark is

    if isinstance(kind, types.ArrayType):
        return _is_hashable(kind.elementType)
    if isinstance(kind, types.StructType):
        return all(_is_hashable(field.dataType) for field in kind.fields)
    if isinstance(kind, types.StringType):
        # Spark hashes a collated string by its collation key, which Python cannot compute.
        return getattr(kind, "collation", "UTF8_BINARY") in {None, "UTF8_BINARY"}
    # Spark cannot hash a map.
    return not isinstance(kind, (types.DayTimeIntervalType, types.MapType))


def _is_sortable(kind: DataType) -> bool:
    """Return True if Arrow sorts such a column as Spark does."""
    from pyspark.sql import types  # noqa: PLC0415 - pyspark only where Spark is

    nested = (types.ArrayType, types.MapType, types.StructType)
    return not isinstance(kind, nested) and (
        _is_hashable(kind) or isinstance(kind, types.DayTimeIntervalType)
    )
