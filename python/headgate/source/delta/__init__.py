"""A source of Delta tables, by deltalake. Decision: ADR 0050."""

from importlib.util import find_spec

from headgate.errors import PackageNotFound

if find_spec("deltalake") is None:
    raise PackageNotFound(
        "headgate.source.delta needs deltalake, which is not installed",
        asked="import headgate.source.delta",
        remedy='pip install "headgate[delta]" · pip install deltalake',
    )

from headgate.source.delta.source import DeltaSource

__all__ = ["DeltaSource"]
