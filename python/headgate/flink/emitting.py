"""Emitting to a random subpartition."""

from __future__ import annotations

from typing import Any

from headgate._arguments import instance, takes
from headgate.writer import RecordWriter


@takes(writer=instance("a RecordWriter", RecordWriter))
def random_emit(writer: RecordWriter, record: Any) -> None:
    """Emit a record to one subpartition at random, whatever the writer's selector.

    For records without a key, such as latency markers. A batch goes to one subpartition as a whole.
    Source: Flink's ``RecordWriter.randomEmit``.

    >>> import headgate as hg
    >>> from headgate.flink import random_emit
    >>> with hg.ShuffleEnvironment() as env:
    ...     partition = env.create_result_partition(1)
    ...     gate = env.create_input_gate([partition.address(0)])
    ...     with hg.RecordWriter(partition, serializer="bytes") as writer:
    ...         random_emit(writer, b"marker")
    ...     list(hg.RecordReader(gate, serializer="bytes"))
    [b'marker']
    """
    for part in writer._prepared(record):  # noqa: SLF001 - one package
        writer._native.random_emit(part)  # noqa: SLF001 - one package
