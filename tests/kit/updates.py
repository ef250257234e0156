"""Results that change: streams without a job, and what a reader of the changes has."""

from collections import Counter

from headgate._changes import CHANGE_TYPE, CHANGES
from headgate.source import NumberSequenceSource
from headgate.stream import stream


def keyed_stream(schema, keys):
    """Return a keyed stream of a schema, to which calls add operators."""
    source = stream(NumberSequenceSource(0, 1))
    return source.map(lambda batch: [], schema=schema).key_by(*keys)


def operator_of(stream_):
    """Return what makes the last operator of a stream, and what makes the one before the exchange."""
    (edge,) = stream_._edges
    (before,) = edge.node.inputs
    return edge.node.make, before.node.make


class View:
    """The rows of an updating result, as a reader of its changes has them."""

    def __init__(self):
        self.rows = Counter()

    def apply(self, changes):
        for columns in changes:
            change = columns.pop(CHANGE_TYPE)
            row = tuple(sorted(columns.items()))
            assert change in CHANGES
            if change in ("insert", "update_after"):
                self.rows[row] += 1
            else:
                assert self.rows[row] > 0, (change, row)
                self.rows[row] -= 1
        return +self.rows


def views_of(rows_):
    return Counter(tuple(sorted(row.items())) for row in rows_)
