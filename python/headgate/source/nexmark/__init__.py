"""The events of the Nexmark benchmark: people who open auctions and bid in them."""

from headgate.source.nexmark.source import NexmarkSource, NexmarkSplit

__all__ = ["NexmarkSource", "NexmarkSplit"]
