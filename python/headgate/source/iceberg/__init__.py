"""A source of Iceberg tables, by PyIceberg. Decision: ADR 0050."""

from headgate.source.iceberg.source import IcebergSource

__all__ = ["IcebergSource"]
