"""Tables that Spark 4.0.5 wrote with Delta 4.0.1 have the rows that it reads from them, and its changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headgate.source import read
from headgate.source.delta import DeltaSource

DATA = Path(__file__).parent / "data" / "delta"
#: Name of a table, and what it has.
TABLES = {
    "cdf": "a change data feed, partitions, a version of OPTIMIZE",
    "dv": "deletion vectors in files, of deletes and an update",
    "idmapped": "columns and fields that were renamed, found by their ids",
    "mapped": "columns and fields that were renamed, dropped and added, found by their names",
    "v2": "checkpoints of version 2",
    "widened": "types that were widened, of a field too",
}


def rows(source):
    with read(source, parallelism=2) as batches:
        table = batches.to_reader().read_all()
    return texts(table.to_pylist(maps_as_pydicts="strict"))


def texts(values):
    return sorted(json.dumps(value, sort_keys=True, default=str) for value in values)


def expected(name):
    return json.loads((DATA / name).read_text())


@pytest.fixture
def table(tmp_path, request):
    """Return the path of a copy: readers write nothing, and this shows it."""
    return shutil.copytree(DATA / request.param, tmp_path / request.param)


@pytest.mark.parametrize("table", TABLES, indirect=True)
def test_the_rows_are_those_that_spark_reads(table):
    before = sorted(table.rglob("*"))
    wanted = expected(f"{table.name}.expected.json")["rows"]
    assert len(wanted) >= 2
    assert rows(DeltaSource(str(table))) == texts(wanted)
    assert rows(DeltaSource(str(table), batch_rows=1, split_size=1)) == texts(wanted)
    assert sorted(table.rglob("*")) == before


@pytest.mark.parametrize("table", ["cdf"], indirect=True)
def test_the_changes_are_those_that_spark_reads(table):
    columns = ["n", "s", "p", "_change_type", "_commit_version"]
    source = DeltaSource(str(table), changes=True, after=0, columns=columns)
    wanted = expected("cdf.changes.json")
    assert {row["_change_type"] for row in wanted} > {"insert", "delete", "update_preimage"}
    assert rows(source) == texts(wanted)
