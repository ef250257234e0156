"""A source of Delta tables, by deltalake. Decision: ADR 0050."""

from headgate.source.delta.source import DeltaSource

__all__ = ["DeltaSource"]
