"""Keys of several types, and what a model of state keeps of them."""

import math

import pyarrow as pa
from hypothesis import strategies as st

SCHEMAS = {
    "long": pa.schema([("id", pa.int64())]),
    "string": pa.schema([("name", pa.string())]),
    "double": pa.schema([("x", pa.float64())]),
    "several": pa.schema([("id", pa.int32()), ("name", pa.string()), ("at", pa.timestamp("us"))]),
    "nested": pa.schema([("of", pa.struct([("a", pa.int64()), ("b", pa.string())]))]),
    "list": pa.schema([("of", pa.list_(pa.int32()))]),
    "strict": pa.schema([("of", pa.struct([pa.field("a", pa.int64(), nullable=False)]))]),
    "deep": pa.schema([("of", pa.list_(pa.struct([("x", pa.float32())])))]),
}

_text = st.sampled_from(["", "a", "b", "zoë"])
VALUES = {
    "long": st.tuples(st.integers(0, 5)),
    "string": st.tuples(st.none() | _text),
    "double": st.tuples(st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.5])),
    "several": st.tuples(
        st.none() | st.integers(0, 2),
        st.none() | _text,
        st.none() | st.integers(0, 1).map(lambda n: pa.scalar(n, pa.timestamp("us")).as_py()),
    ),
    "nested": st.tuples(
        st.none() | st.builds(lambda a, b: {"a": a, "b": b}, st.none() | st.integers(0, 2), _text)
    ),
    "list": st.tuples(st.none() | st.lists(st.integers(0, 1), max_size=2)),
    "strict": st.tuples(st.none() | st.builds(lambda a: {"a": a}, st.integers(0, 2))),
    "deep": st.tuples(
        st.none()
        | st.lists(
            st.none() | st.builds(lambda x: {"x": x}, st.none() | st.sampled_from([0.0, -0.0])),
            max_size=2,
        )
    ),
}

KINDS = sorted(SCHEMAS)
#: A kind of key, and batches of keys.
many_keys = st.sampled_from(KINDS).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.lists(VALUES[kind], max_size=12), max_size=8))
)


def batch(kind, keys):
    schema = SCHEMAS[kind]
    columns = zip(*keys, strict=True) if keys else [[] for _ in schema]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def frozen(key):
    """Return a hashable form in which equal keys are equal: NaN is itself, and -0.0 is 0.0."""
    return repr(key).replace("-0.0", "0.0")


def rows_of(columns):
    """Return the rows of a batch as tuples."""
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def distinct(keys):
    """Return the distinct keys in the order of their first rows, in their hashable form."""
    return list(dict.fromkeys(map(frozen, keys)))
