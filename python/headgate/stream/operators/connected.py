"""The operator of a function of two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.stream.operators.process import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headgate.stream.operators.sides import Sides

_METHODS: Final = ("process_first", "process_second")


class CoProcessOperator(FunctionOperator):
    """The operator of a :class:`~headgate.stream.CoProcessFunction`. The keys have the first stream's names.

    Args:
        function: an instance, or what makes one.
        sides: the two streams.
        schema: of the result.
        side_outputs: schemas by name.
    """

    def __init__(
        self, function: Any, sides: Sides, schema: pa.Schema, side_outputs: Mapping[str, pa.Schema]
    ) -> None:
        super().__init__(function, sides.key_schema, schema, side_outputs)
        self._sides = sides

    def process(self, batch: pa.RecordBatch) -> None:
        """Call the function for the rows of each side."""
        for side, rows in self._sides.split(batch):
            if self._backend is not None:
                self._backend.set_keys([rows[key] for key in self._sides.keys[side]])
                self._call(_METHODS[side], rows)
