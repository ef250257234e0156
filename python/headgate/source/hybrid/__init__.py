"""Sources one after another: files first, say, and then a stream. After Flink's HybridSource."""

from headgate.source.hybrid.source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
