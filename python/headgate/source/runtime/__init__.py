"""The operator that drives the reader of a source."""

from headgate.source.runtime.context import LocalReaderContext
from headgate.source.runtime.mode import OperatingMode
from headgate.source.runtime.operator import SourceOperator

__all__ = ["LocalReaderContext", "OperatingMode", "SourceOperator"]
