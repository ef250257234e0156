"""Which partition a producer sends each row to."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.spark.tasks.user_function import guarded


def selector_of(by: Any, producer: int, num_partitions: int, seed: int) -> Any:
    """Return the selector of one producer. Another attempt at its task makes the same choices.

    Args:
        by: column names, a selector, a function, or None.
        producer: number of the producer.
        num_partitions: partitions of the result.
        seed: of the exchange, for random choices without a seed of their own.
    """
    if isinstance(by, list):
        return hg.HashSelector(by)
    if by is None or isinstance(by, hg.RebalanceSelector):
        start = producer % num_partitions
        return hg.RoundRobinSelector(start, by_rows=by is not None and by.by_rows)
    if isinstance(by, hg.ShuffleSelector):
        seed = seed if by.seed is None else by.seed
        return hg.ShuffleSelector((seed + producer) % 2**64, by.by_rows)
    return guarded("by", by) if callable(by) else by
