"""The part of tables in a lake that all formats share: splits, enumerator, reading. Decision: ADR 0050."""

from headgate.source.tables.source import TableSource
from headgate.source.tables.split import TableCheckpoint, TableSplit
from headgate.source.tables.table import ColumnBounds, Pinned, Table, TableFile

__all__ = [
    "ColumnBounds",
    "Pinned",
    "Table",
    "TableCheckpoint",
    "TableFile",
    "TableSource",
    "TableSplit",
]
