"""Columns with one value in a whole file: given, or in the names of folders, such as ``/data/day=2026-01-31/``.

ADR 0001 says which part ``pyarrow.dataset`` does, and why the rest is here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._partition_names import parsed
from headgate.errors import SchemaMismatchError, SourceError

if TYPE_CHECKING:
    import pyarrow.compute as pc

Values = Mapping[str, str | None]


class FolderPartitions:
    """The columns in the names of the folders of files.

    Args:
        values_of: returns these columns of a file, as texts.
    """

    def __init__(self, values_of: Callable[[str], Values]) -> None:
        self._values_of = values_of

    def group(self, path: str) -> Hashable:
        """Return a key that is equal only for files with the same values."""
        return path.rpartition("/")[0]

    def fixed(self, path: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
        """Return the values of a file for the columns of a schema, in its types."""
        return constants(self._values_of(path), schema, path)


class GivenPartitions:
    """The columns whose values are given for each file.

    Args:
        values: path of a file -> column -> value.
        schema: has a type for each of these columns.

    Raises:
        SchemaMismatchError: a value does not fit its column.
    """

    def __init__(self, values: Mapping[str, Mapping[str, Any]], schema: pa.Schema) -> None:
        #: Files of one partition share a mapping, which is converted, and pickled, once.
        converted: dict[int, dict[str, pa.Scalar]] = {}
        self._values = {
            path: converted.get(id(columns))
            or converted.setdefault(id(columns), _scalars(columns, schema, path))
            for path, columns in values.items()
        }

    def group(self, path: str) -> Hashable:
        """Return a key that is equal only for files with the same values."""
        return id(self._values.get(path))

    def fixed(self, path: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
        """Return the values of a file for the columns of a schema.

        Raises:
            SourceError: none are given for the file.
        """
        values = self._values.get(path)
        if values is None:
            raise SourceError(
                f"partitioning has no values for {path}",
                asked=path,
                remedy="values for each file that the paths name",
                details={"path": path},
            )
        return {name: value for name, value in values.items() if name in schema.names}


def folder_values(path: str, roots: Sequence[str]) -> dict[str, str | None]:
    """Return the columns in the names of the folders between a root and a file.

    Args:
        path: the file's path.
        roots: the paths of the source; folders in these paths do not count.
    """
    above = [root for root in roots if path.startswith(root.rstrip("/") + "/")]
    below = path[max((len(root) for root in above), default=0) :]
    return dict(filter(None, map(parsed, below.split("/")[:-1])))


def with_folder_columns(schema: pa.Schema, values: Sequence[Values]) -> pa.Schema:
    """Append the columns of folders to a schema; they replace columns with the same names.

    A column has 64-bit integers if all its values are integers in the form that ``str()`` gives
    them (so not ``07``), else strings.

    Args:
        schema: the schema of the files.
        values: the values of each file's folders.
    """
    texts_by_name: dict[str, list[str]] = {}
    for folders in values:
        for name, value in folders.items():
            texts = texts_by_name.setdefault(name, [])
            if value is not None:
                texts.append(value)
    fields = [field for field in schema if field.name not in texts_by_name]
    fields += [pa.field(name, _type_of(texts)) for name, texts in texts_by_name.items()]
    return pa.schema(fields)


def constants(values: Values, schema: pa.Schema, path: str) -> dict[str, pa.Scalar]:
    """Return the values of a file's folders for the columns of a schema, in its types.

    Raises:
        SchemaMismatchError: a value cannot be cast; the error names file and column.
    """
    scalars = {}
    for name, value in values.items():
        if name not in schema.names:
            continue
        field = schema.field(name)
        try:
            scalars[name] = pa.array([value], pa.string()).cast(field.type)[0]
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"{name}={value} in the path {path} is no {field.type}",
                asked=f"{name} {field.type}",
                have=f"{name}={value}",
                remedy="give a schema with another type",
                details={"path": path, "column": name},
            ) from error
    return scalars


def guarantee(fixed: Mapping[str, pa.Scalar]) -> pc.Expression | None:
    """Return the expression that is true for these values of columns; None if there is none."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only filters need it

    terms = [
        pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        for name, value in fixed.items()
    ]
    return reduce(and_, terms) if terms else None


def may_match(expression: pc.Expression, fixed: Mapping[str, pa.Scalar], schema: pa.Schema) -> bool:
    """Return True if an expression can be true for a row with these values of columns."""
    partition = guarantee(fixed)
    return partition is None or can_be_true(expression, partition, schema)


def can_be_true(expression: pc.Expression, truth: pc.Expression, schema: pa.Schema) -> bool:
    """Return True if an expression can be true for a row for which another one is true."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - slow to import, and only filters need it
    import pyarrow.fs as pafs  # noqa: PLC0415 - see above

    kind, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    # get_fragments() evaluates the partition expression only, and opens no file.
    fragment = kind.make_fragment("/", nowhere, partition_expression=truth)
    dataset = ds.FileSystemDataset([fragment], schema, kind, nowhere)
    return any(True for _ in dataset.get_fragments(expression))


def _scalars(values: Mapping[str, Any], schema: pa.Schema, path: str) -> dict[str, pa.Scalar]:
    scalars = {}
    for name, value in values.items():
        places = schema.get_all_field_indices(name)
        kind = schema.field(places[0]).type if places else None
        try:
            scalars[name] = pa.scalar(value, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatchError(
                f"the value {value!r} of {name} for {path} is no {kind}",
                asked=f"{name} {kind}",
                have=repr(value),
                remedy="a value of this type · a schema with another type",
                details={"path": path, "column": name},
            ) from error
    return scalars


def _type_of(texts: Sequence[str]) -> pa.DataType:
    values = pa.array(texts, pa.string())
    try:
        integers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int64() if texts and integers.cast(pa.string()).equals(values) else pa.string()
