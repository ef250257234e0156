"""A source of Iceberg tables, by PyIceberg. Decision: ADR 0050."""

from importlib.util import find_spec

from headgate.errors import PackageNotFound

if find_spec("pyiceberg") is None:
    raise PackageNotFound(
        "headgate.source.iceberg needs pyiceberg, which is not installed",
        asked="import headgate.source.iceberg",
        remedy='pip install "headgate[iceberg]" · pip install pyiceberg',
    )

from headgate.source.iceberg.source import IcebergSource

__all__ = ["IcebergSource"]
