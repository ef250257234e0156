"""Random tables of several writers and random scans of them: workers read Spark's own rows, or Spark reads."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.random_scans import SCANS, by_workers, rows_of, run
from tests.kit.random_tables import random_table

from headgate.spark import exchange
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: A twentieth of those of the soak.
COUNT = 104


def same(batches):
    yield from batches


def test_random_scans_give_sparks_rows(spark, tmp_path):
    report = run(spark, tmp_path, 0, COUNT)
    assert not report.differences, report
    assert report.workers > COUNT // 5, report
    # Each was looked at.
    assert report.workers + report.reasons.total() == COUNT


def test_random_scans_through_whole_exchanges(spark, tmp_path):
    """All types pass the exchange too, with the types and values of Spark's rows."""
    passed = 0
    for seed in range(1_000, 1_200):
        table = random_table(seed, tmp_path / str(seed), spark, oddness=0.0)
        df = table.read(spark)
        try:
            source_of(df)
        except Unsure:
            continue
        out = exchange(
            df, by="id", map=same, num_partitions=2, read="auto", mode="kept", schema=df.schema
        )
        assert rows_of(out.toArrow()) == rows_of(df.toArrow()), f"seed {seed}: {table.written}"
        passed += 1
        if passed == 5:
            return
    pytest.fail("few random scans are read by workers")


def test_a_difference_is_seen(spark, tmp_path, monkeypatch):
    """A reader that loses a row is reported for each scan."""

    def fewer(source):
        table = by_workers(source)
        return table.slice(1) if table.num_rows else table.append_column("more", pa.nulls(0))

    monkeypatch.setattr("tests.kit.random_scans.by_workers", fewer)
    report = run(spark, tmp_path, 0, SCANS * 4)
    assert report.workers == len(report.differences) > 0
