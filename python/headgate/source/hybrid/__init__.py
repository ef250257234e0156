"""A chain of sources, such as files and then a stream. After Flink's HybridSource."""

from headgate.source.hybrid.source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
