"""The values of expressions of ``pyarrow.compute`` for the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero


def values_of(batch: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> list[pa.Array]:
    """Return the values of each expression, one per row, by one run of Arrow's engine for all of them."""
    if not expressions:
        return []
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    names = [str(at) for at in range(len(expressions))]
    project = acero.ProjectNodeOptions(list(expressions), names)
    plan = acero.Declaration.from_sequence(
        [acero.Declaration("table_source", source), acero.Declaration("project", project)]
    )
    # Without threads the rows stay in order.
    table = plan.to_table(use_threads=False)
    return [column.combine_chunks() for column in table.columns]
