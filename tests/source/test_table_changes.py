"""What is new in a table is read once, whatever checkpoints a job goes on from; changed rows are refused."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.kit.tables import sorted_rows
from tests.source.test_iceberg import Warehouse

from headgate.errors import SourceError
from headgate.source import plan_splits, read_splits
from headgate.source.delta import DeltaSource


class OfDelta:
    def __init__(self, folder):
        self.path = str(folder / "table")

    def append(self, table):
        write_deltalake(self.path, table, mode="append", schema_mode="merge")

    def source(self, **options):
        return DeltaSource(self.path, discovery_interval="1s", **options)

    def delete(self):
        DeltaTable(self.path).delete("n >= 0")

    def rewrite(self):
        DeltaTable(self.path).optimize.compact()

    def close(self):
        """Do nothing."""


class OfIceberg(Warehouse):
    def append(self, table):
        if self.catalog.table_exists("db.t"):
            with self.table.update_schema() as change:
                change.union_by_name(table.schema)
            self.table.append(table)
        else:
            self.make(table)

    def source(self, **options):
        return super().source(discovery_interval="1s", **options)

    def delete(self):
        self.table.delete("n >= 0 and n < 3")

    def rewrite(self):
        """PyIceberg has no call that only rewrites files."""


@pytest.fixture(params=[OfDelta, OfIceberg])
def lake(request, tmp_path):
    opened = request.param(tmp_path)
    yield opened
    opened.close()


def numbers(first, count=5):
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


class Job:
    """Plans, one after the other, each from the checkpoint of the one before."""

    def __init__(self, source, checkpoint=None):
        self.source, self.checkpoint, self.rows = source, checkpoint, []

    def run(self, most=None, *, fails=False):
        planned = plan_splits(self.source, self.checkpoint, max_splits=most)
        if not fails:  # A plan that fails is made again, from the checkpoint before it.
            self.checkpoint = planned.checkpoint
            for batch in read_splits(self.source, planned.version, planned.splits):
                self.rows += batch["n"].to_pylist()
        return len(planned.splits)


def test_each_row_is_read_once_from_whatever_checkpoint(lake):
    chance, first = random.Random(7), 0
    lake.append(numbers(0))
    job = Job(lake.source())
    for _ in range(25):
        match chance.randrange(4):
            case 0:
                first += 5
                lake.append(numbers(first))
            case 1:
                lake.rewrite()
            case 2:
                job.run(chance.choice([None, 1, 2]), fails=chance.random() < 0.3)
            case 3:  # a new process, with a source of its own
                job.source = lake.source()
    while job.run(1):
        pass
    assert sorted(job.rows) == list(range(first + 5))


def test_rows_after_a_version_and_to_come(lake):
    lake.append(numbers(0))
    everything, later = Job(lake.source(after=-1)), Job(lake.source(after="latest"))
    assert later.run() == 0
    lake.append(numbers(5))
    everything.run()
    later.run()
    assert sorted(everything.rows) == list(range(10))
    assert sorted(later.rows) == list(range(5, 10))


def test_deleted_rows_are_an_error_or_left_out(lake):
    lake.append(numbers(0))
    job, skips = Job(lake.source()), Job(lake.source(skip_change_commits=True))
    assert job.run() == skips.run() == 1
    lake.delete()
    lake.append(numbers(5))
    with pytest.raises(SourceError, match="deletes or changes rows") as caught:
        job.run()
    assert "skip_change_commits=True" in caught.value.remedy
    skips.run()
    assert skips.rows == list(range(10))


def test_new_columns_need_a_start_of_the_job(lake):
    lake.append(numbers(0))
    job = Job(lake.source())
    job.run()
    lake.append(numbers(5).append_column("more", pa.array(["x"] * 5)))
    with pytest.raises(SourceError, match="other columns") as caught:
        job.run()
    assert "start the job again" in caught.value.remedy
    job.source = lake.source()
    job.run()
    assert job.source.schema.names == ["n", "more"]
    assert job.rows == list(range(10))


def test_a_table_that_was_made_anew_is_not_the_one_of_the_checkpoint(tmp_path):
    lake = OfDelta(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    job.run()
    other = OfDelta(tmp_path / "other")
    other.append(numbers(100))
    with pytest.raises(SourceError, match="another table"):
        Job(other.source(), job.checkpoint).run()


def test_versions_that_the_log_does_not_have_any_more(tmp_path):
    lake = OfDelta(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    job.run()
    lake.append(numbers(5))
    lake.append(numbers(10))
    DeltaTable(lake.path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    job.source = lake.source()
    with pytest.raises(SourceError, match="does not have version 1 any more") as caught:
        job.run()
    assert "delta.logRetentionDuration" in caught.value.remedy


def test_an_expired_snapshot_is_an_error(tmp_path):
    lake = OfIceberg(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    job.run()
    old = lake.table.current_snapshot().snapshot_id
    lake.append(numbers(5))
    lake.table.maintenance.expire_snapshots().by_id(old).commit()
    job.source = lake.source()
    with pytest.raises(SourceError, match=f"does not have snapshot {old} any more"):
        job.run()
    lake.close()


def test_a_vacuumed_file_is_an_error_that_names_it(tmp_path):
    lake = OfDelta(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    planned = plan_splits(job.source)
    lake.delete()
    DeltaTable(lake.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceError, match="is gone") as caught:
        list(read_splits(job.source, planned.version, planned.splits))
    assert "newer version" in caught.value.remedy


def test_an_unknown_action_of_the_log_is_refused_by_its_name(tmp_path):
    lake = OfDelta(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    job.run()
    lake.append(numbers(5))
    log = tmp_path / "table" / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text() + "\n" + json.dumps({"futureAction": {}}))
    with pytest.raises(SourceError, match="'futureAction'"):
        job.run()


def test_transactions_of_applications_are_no_rows(tmp_path):
    from deltalake import Transaction

    lake = OfDelta(tmp_path)
    lake.append(numbers(0))
    job = Job(lake.source())
    mark = CommitProperties(app_transactions=[Transaction("app", 1)])
    write_deltalake(lake.path, numbers(5), mode="append", commit_properties=mark)
    job.run()
    job.run()
    assert sorted(job.rows) == list(range(10))


def test_the_feed_of_changes_goes_on_after_a_checkpoint(tmp_path):
    lake = OfDelta(tmp_path)
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(lake.path, numbers(0), configuration=feed)
    source, checkpoint, changes = lake.source(changes=True), None, []
    for number in range(3):
        planned = plan_splits(source, checkpoint)
        checkpoint, source = planned.checkpoint, lake.source(changes=True)
        changes += read_splits(source, planned.version, planned.splits)
        DeltaTable(lake.path).update(updates={"n": "n + 100"}, predicate=f"n = {number}")
        lake.rewrite()
        lake.append(numbers(10 + number, 1))
    planned = plan_splits(source, checkpoint)
    changes += read_splits(source, planned.version, planned.splits)
    wanted = pa.table(DeltaTable(lake.path).load_cdf(starting_version=0).read_all())
    names = ["n", "_change_type", "_commit_version"]
    assert sorted_rows(pa.Table.from_batches(changes).select(names)) == sorted_rows(
        wanted.select(names)
    )


READS = """
import pickle, sys
sys.modules["deltalake"] = sys.modules["pyiceberg"] = None
from headgate.source import read_splits
source, planned = pickle.load(open(sys.argv[1], "rb"))
print(sorted(n for batch in read_splits(source, planned.version, planned.splits) for n in batch["n"].to_pylist()))
for make in ("delta.DeltaSource", "iceberg.IcebergSource"):
    module, name = make.split(".")
    try:
        getattr(__import__("headgate.source." + module, fromlist=[name]), name)("table")
    except ImportError as error:
        print(error.code)
"""


def test_readers_do_without_the_package_and_a_new_source_says_that_it_is_missing(lake, tmp_path):
    lake.append(numbers(0))
    source = lake.source()
    plan = tmp_path / "plan"
    plan.write_bytes(pickle.dumps((source, plan_splits(source))))
    run = [sys.executable, "-c", READS, str(plan)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[0, 1, 2, 3, 4]", "HG-1103", "HG-1103"]
