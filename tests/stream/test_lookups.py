"""Lookups against a loop over rows."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import HeadgateError, OptionError, StreamError, UnknownColumnError
from headgate.sink import FunctionSink
from headgate.source import FileSource, NumberSequenceSource, RateSource
from headgate.stream import stream

ROWS = pa.schema([("user", pa.string()), ("day", pa.float64()), ("size", pa.int64())])
TABLE = pa.schema([("size", pa.int64()), ("id", pa.string()), ("day", pa.float64())])

USERS = st.sampled_from([None, "a", "b", "c"])
DAYS = st.sampled_from([None, 0.0, -0.0, 1.5])
SIZES = st.integers(0, 3)


def rows_of(schema, rows):
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in schema]
    return pa.record_batch(columns, schema=schema)


def one_batch(batch):
    """Return a stream of a batch."""

    def replace(numbers):
        return batch if numbers.num_rows else batch.slice(0, 0)

    return stream(NumberSequenceSource(0, 1)).map(replace, schema=batch.schema)


def result(looked_up):
    batches = []
    looked_up.sink(FunctionSink(batches.append)).run()
    return Counter(
        row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)
    )


def process(looked_up, batch):
    """Return the rows of the operator of a stream, without a job."""
    operator, emitted = looked_up._edges[0].node.make(), []

    class Context:
        uid = "lookup"

        def emit(self, rows, output):
            assert rows.schema.equals(looked_up.schema)
            rows.validate(full=True)
            emitted.extend(zip(*rows.to_pydict().values(), strict=True))

    operator.open(Context())
    operator.process(batch)
    return Counter(emitted)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(USERS, DAYS, SIZES), min_size=1, max_size=8),
    table=st.lists(st.tuples(SIZES, USERS, DAYS), max_size=8),
    how=st.sampled_from(["inner", "left"]),
    by_day=st.booleans(),
    kind=st.sampled_from(["table", "parts", "function"]),
)
def test_a_lookup_pairs_as_a_loop_does(rows, table, how, by_day, kind):
    on = {"user": "id", "day": "day"} if by_day else {"user": "id"}
    batch, looked = rows_of(ROWS, rows), rows_of(TABLE, table)
    asked_for = []

    def find(keys):
        asked_for.append(keys.to_pylist())
        users = keys["user"].to_pylist()
        return rows_of(TABLE, [row for row in table if row[1] in users])

    parts = [looked.slice(at, 2) for at in range(0, looked.num_rows, 2)]
    source = {"table": looked, "parts": pa.Table.from_batches(parts, TABLE), "function": find}[kind]
    looked_up = one_batch(batch).lookup(source, on=on, how=how)
    expected = Counter()
    for user, day, size in rows:
        matches = [
            other
            for other in table
            if user is not None and other[1] == user and (not by_day or day == other[2] != None)  # noqa: E711
        ]
        for other in matches or ([(None, None, None)] if how == "left" else []):
            more = (other[0],) if by_day else (other[0], other[2])
            expected[(user, day, size, *more)] += 1
    assert process(looked_up, batch) == expected
    if kind == "function":
        keys = [tuple(key.values()) for key in asked_for[-1]]
        assert len(set(keys)) == len(keys)


def test_files_and_sources_are_read_when_the_job_starts(tmp_path):
    table = pa.table({"id": range(5), "square": [n * n for n in range(5)]})
    pq.write_table(table, tmp_path / "squares.parquet")
    expected = Counter({(n, n * n): 1 for n in range(5)})
    path = str(tmp_path / "squares.parquet")
    for rows in (path, FileSource(path), table):
        numbers = stream(NumberSequenceSource(0, 9))
        assert result(numbers.lookup(rows, on="id")) == expected


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on": "missing"}, UnknownColumnError),
        ({"on": {"user": "missing"}}, UnknownColumnError),
        ({"on": {"size": "id"}}, StreamError),
        ({"on": []}, OptionError),
        ({"on": {"user": "id", "day": "id"}}, OptionError),
        ({"on": {"user": "id"}, "how": "full"}, OptionError),
        ({"on": {"user": "id"}, "schema": TABLE}, OptionError),
        ({"on": {"user": "id"}, "suffixes": ("", "")}, StreamError),
        ({"on": {"user": "id"}, "table": RateSource(5)}, OptionError),
        ({"on": {"user": "id"}, "table": lambda keys: None}, HeadgateError),
    ],
)
def test_a_lookup_that_cannot_be_is_refused_at_the_call(options, error):
    with pytest.raises(error):
        one_batch(rows_of(ROWS, [])).lookup(**{"table": rows_of(TABLE, []), **options})
