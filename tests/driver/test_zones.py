"""Times of Spark's batches get the zone of their DataFrame, and nothing else changes."""

import datetime as dt

import pyarrow as pa

from headgate.spark.tasks.zones import in_zone

MOMENT = dt.datetime(2024, 3, 10, 10, 30, tzinfo=dt.UTC)


def schema(zone, text):
    at = pa.timestamp("us", tz=zone)
    nested = pa.list_(pa.struct({"at": at, "n": pa.int64()}))
    return pa.schema({"at": at, "text": text, "nested": nested, "local": pa.timestamp("us")})


def batch(schema):
    row = {"at": MOMENT, "text": "x", "nested": [{"at": MOMENT, "n": 1}], "local": None}
    return pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema=schema)


def test_times_get_the_zone_also_inside_and_stay_the_same_moments():
    utc, want = batch(schema("UTC", pa.string())), schema("America/Los_Angeles", pa.string())
    for labelled in in_zone([utc, utc], want):
        assert labelled.schema == want
        assert labelled.cast(utc.schema).equals(utc)


def test_other_types_stay_as_spark_gives_them():
    utc = batch(schema("UTC", pa.large_string()))
    (labelled,) = in_zone([utc], schema("Europe/Berlin", pa.string()))
    assert labelled.schema == schema("Europe/Berlin", pa.large_string())
    assert labelled["text"].equals(utc["text"])


def test_a_batch_that_has_the_zone_is_passed_on():
    mine = batch(schema("UTC", pa.string()))
    others = batch(schema("Europe/Berlin", pa.string()))
    labelled = list(in_zone([mine, others, mine], mine.schema))
    assert labelled[0] is mine
    assert labelled[2] is mine
    assert labelled[1].schema == mine.schema
