"""Parts of Flink's exchange that nothing else here needs: they wrap the writers, readers and gates of :mod:`headgate`.

Unions of gates, supersteps, emitting to a random subpartition, and reading into memory of the
caller. No other module imports this package.
"""

from headgate.flink.emitting import random_emit
from headgate.flink.mutable_reader import MutableRecordReader
from headgate.flink.supersteps import SuperstepReader, end_of_superstep
from headgate.flink.union import UnionInputGate

__all__ = [
    "MutableRecordReader",
    "SuperstepReader",
    "UnionInputGate",
    "end_of_superstep",
    "random_emit",
]
