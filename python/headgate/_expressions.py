"""The values of expressions of ``pyarrow.compute`` for rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc


def evaluated(expressions: Sequence[pc.Expression], table: pa.Table) -> pa.Table:
    """Return a table with the values of expressions, in their order: one run of Arrow's engine for all of them."""
    if not expressions:
        return pa.table({})
    from pyarrow import acero  # noqa: PLC0415 - slow to import, and only expressions need it

    names = [str(number) for number in range(len(expressions))]
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
        ]
    )
    # Without threads the rows stay in order.
    return plan.to_table(use_threads=False)
