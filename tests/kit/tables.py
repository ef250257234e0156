"""Rows of tables in any order."""


def sorted_rows(table):
    """Return the rows as texts, sorted: NaN is equal to itself, and -0.0 is not 0.0."""
    return sorted(map(repr, table.to_pylist()))
