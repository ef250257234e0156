"""Every source that ships keeps the contract of a source."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv as pac
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from headgate.source import CsvOptions, FileSource, HybridSource, NumberSequenceSource
from headgate.source.testing import SourceTestBase

TABLE = pa.table(
    {
        "id": pa.array([None if n % 9 == 4 else n for n in range(100)], pa.int64()),
        "text": [f"row {n}" * (n % 3) for n in range(100)],
        "ratio": [n / 4 for n in range(100)],
    }
)


class TestNumbers(SourceTestBase):
    num_splits = 10

    def create_source(self):
        return NumberSequenceSource(0, 100, splits=10, batch_size=3)

    def expected_records(self):
        return pa.table({"id": range(100)})


class TestNumbersAtARate(SourceTestBase):
    parallelisms = (1, 2)

    def create_source(self):
        return NumberSequenceSource(0, 40, splits=4, rows_per_second=5000)

    def expected_records(self):
        return pa.table({"id": range(40)})


class OfFiles(SourceTestBase):
    folder: ClassVar[str]
    kind: ClassVar[str]
    options: ClassVar[dict[str, object]] = {}

    @classmethod
    def setup_class(cls):
        cls.folder = tempfile.mkdtemp(prefix="headgate-")
        for number in range(4):
            cls.write(TABLE.slice(number * 25, 25), f"{cls.folder}/{number}.{cls.kind}")

    @classmethod
    def teardown_class(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def write(cls, table, path):
        raise NotImplementedError

    def create_source(self):
        options = {"split_size": 1, "batch_rows": 4, "schema": TABLE.schema, **self.options}
        return FileSource(self.folder, self.kind, **options)

    def expected_records(self):
        return TABLE


class TestParquet(OfFiles):
    kind = "parquet"
    num_splits = 12

    @classmethod
    def write(cls, table, path):
        pq.write_table(table, path, row_group_size=10)


class TestGrowingFolder(TestParquet):
    num_splits = None
    options: ClassVar[dict[str, object]] = {"discovery_interval": 0.01}


class TestArrow(OfFiles):
    kind = "arrow"
    num_splits = 12

    @classmethod
    def write(cls, table, path):
        feather.write_feather(table, path, chunksize=10)


class TestCsv(OfFiles):
    kind = "csv"
    num_splits = 4

    @classmethod
    def write(cls, table, path):
        pac.write_csv(table, path)


class TestCsvInRanges(TestCsv):
    num_splits = None
    options: ClassVar[dict[str, object]] = {
        "split_size": 50,
        "csv": CsvOptions(newlines_in_values=False),
    }


class TestJsonLines(OfFiles):
    kind = "json"
    options: ClassVar[dict[str, object]] = {"split_size": 200}

    @classmethod
    def write(cls, table, path):
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


class TestChain(SourceTestBase):
    num_splits = 9

    def create_source(self):
        first = NumberSequenceSource(0, 20, splits=4, batch_size=3)
        then = NumberSequenceSource(100, 120, splits=5, batch_size=4)
        return HybridSource.builder(first).add_source(then).build()

    def expected_records(self):
        return pa.table({"id": [*range(20), *range(100, 120)]})


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr("headgate.source.files.format._SMALLEST_SPLIT", 1)
