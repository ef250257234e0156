"""A scan of a Delta table as a source of the version that Spark scans.

Delta's log has all that its rows depend on, so properties that the catalog has are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from headgate.errors import HeadgateError
from headgate.spark.confs import batch_rows
from headgate.spark.plan.read_auto.files import checked
from headgate.spark.plan.read_auto.relation import unmarked_files
from headgate.spark.plan.read_auto.scan import Unsure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import SparkSession

    from headgate.source.delta import DeltaSource
    from headgate.source.tables.table import TableFile

_BY_HAND: Final = "exchange(DeltaSource(path), ...)"
_WITH_OPTIONS: Final = "exchange(DeltaSource(path, storage_options=..., filesystem=...), ...)"


def delta_source(
    relation: Any,
    columns: Sequence[str] | Mapping[str, pc.Expression],
    row_filter: pc.Expression | None,
    used: pa.Schema,
    session: SparkSession,
    nan_column: str,
) -> DeltaSource:
    """Return the source of a table, if pyarrow reads from its files what Spark reads.

    Args:
        relation: of an optimized plan, for which Delta has listed the files.
        columns: as the source takes them.
        row_filter: rows for which it is not true are dropped; None for all rows.
        used: columns of the table that are needed, with the types in which Spark gives them to Python.
        session: the session.
        nan_column: column that the filter keeps at NaN; empty if there is none.

    Raises:
        Unsure: It may not.
    """
    scan = relation.location().preparedScan()
    path = _local_path(relation.location().deltaLog().dataPath().toUri().toString())
    version = int(scan.version())
    try:
        from headgate.source.delta import DeltaSource  # noqa: PLC0415 - imports pyarrow

        source = DeltaSource(
            path,
            version=version,
            columns=columns,
            filter=row_filter,
            # Functions may need memory for each row of a batch, as they do in Spark's mapInArrow.
            batch_rows=batch_rows(session),
        ).with_types(used)
        _check_table(source, str(scan.scannedSnapshot().metadata().id()), path)
        files = source.files()
        _check_number(files, scan.total().files())
        files = list(filter(source.reading().may_have_rows, files))
        _check_files(source, files, used, session, nan_column)
    except HeadgateError as error:
        raise Unsure(error.summary, error.remedy) from error
    return source.with_known_bytes(sum(file.size for file in files))


def _local_path(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc:
        reason = f"its Delta table is on {parts.scheme}://, and deltalake has no settings of Hadoop"
        raise Unsure(reason, _WITH_OPTIONS)
    return unquote(parts.path)


def _check_table(source: DeltaSource, table: str, path: str) -> None:
    from headgate.source.tables.columns import has_ids  # noqa: PLC0415 - imports pyarrow

    if source.pinned.table != table:
        raise Unsure(f"deltalake finds another table in {path} than Spark")
    if has_ids(source.pinned.schema):
        raise Unsure("its columns are mapped by id, and its files are looked at by names", _BY_HAND)


def _check_number(files: Sequence[TableFile], total: Any) -> None:
    have = int(total.get()) if total.isDefined() else None
    if have != len(files):
        raise Unsure(f"deltalake lists {len(files)} files, and Spark {have}")


def _check_files(
    source: DeltaSource,
    files: Sequence[TableFile],
    used: pa.Schema,
    session: SparkSession,
    nan_column: str,
) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    from headgate.source.tables.columns import named_by_keys  # noqa: PLC0415 - imports pyarrow

    if not files:
        raise Unsure("it has no files")
    pinned = source.pinned
    names = [name for name in used.names if name not in pinned.partitions]
    in_files = named_by_keys(pa.schema([pinned.schema.field(name) for name in names]))
    paths = [file.path for file in files]
    checked(
        pinned.files.filesystem, paths, in_files, unmarked_files(session), nan_column, widens=True
    )
