"""Streams of which each task gets all rows, and functions of such a stream beside another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from headgate._arguments import arrow_schema, takes
from headgate.stream.api.checks import OPERATOR, check_process, check_side_outputs
from headgate.stream.api.two_streams import of_both, two_sides
from headgate.stream.graph.functions import BroadcastProcessFunction
from headgate.stream.graph.limits import batch_limits
from headgate.stream.operators.connected import BroadcastOperator

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.api.datastream import BroadcastStream, DataStream


class BroadcastConnectedStream:
    """A stream and a broadcast one. Returned by ``connect()`` of a stream, with keys or without."""

    def __init__(self, rows: DataStream, broadcast: BroadcastStream) -> None:
        self._rows, self._broadcast = rows, broadcast

    @takes(schema=arrow_schema, **OPERATOR)
    def process(
        self,
        function: Callable[[], BroadcastProcessFunction] | BroadcastProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> DataStream:
        """Apply a :class:`BroadcastProcessFunction`; arguments as for :meth:`DataStream.process`.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnsupportedTypeError: a column of a type whose rows pyarrow cannot choose.
        """
        methods = ("open", "process", "process_broadcast", "close")
        check_process(function, BroadcastProcessFunction, methods)
        schema, outputs = schema.remove_metadata(), check_side_outputs(side_outputs)
        limits = batch_limits(batch_rows, batch_bytes)
        streams = self._rows, self._broadcast
        sides = two_sides(*streams)
        make = partial(BroadcastOperator, function, sides, schema, outputs)
        return of_both(
            "broadcast", name, streams, sides, make, schema, parallelism, outputs, limits
        )
