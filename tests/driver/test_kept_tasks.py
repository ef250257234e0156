"""The rows of a kept consumer's task by partition, and the sweep of files."""

import os

import pyarrow as pa
import pytest

from headgate import ChannelAddress
from headgate.errors import IntegrityError, PartitionNotFoundError
from headgate.kept import read_index, write_indexes
from headgate.partition import KeptSubpartition
from headgate.spark.tasks import kept_files, kept_lifetime, kept_locations
from headgate.spark.tasks.kept_consumer import _Partitions
from headgate.spark.tasks.kept_locations import KeptLocations

ROWS = pa.schema(
    [
        ("key", pa.int32()),
        ("producer", pa.int32()),
        ("subpartition", pa.int32()),
        ("rows", pa.int64()),
        ("file", pa.string()),
        ("pages", pa.binary()),
    ]
)


def batches(*places):
    """Return one batch for each list of places; the number of a row is in its pages."""
    number = 0
    for some in places:
        rows = []
        for place in some:
            rows.append({"subpartition": place, "pages": str(number).encode()})
            number += 1
        yield pa.RecordBatch.from_pylist(rows, schema=ROWS)


def read(*places):
    found = []
    for pieces in _Partitions(batches(*places)):
        rows = [one for some in pieces for one in some]
        numbers = [int(row["pages"]) for row in rows]
        found.append(([row["subpartition"] for row in rows], numbers))
    return found


def test_a_task_without_rows_has_one_partition():
    assert read() == read([]) == read([], []) == [([], [])]


def test_the_rows_of_one_partition_come_in_their_order():
    assert read([3, 3], [], [3]) == [([3, 3, 3], [0, 1, 2])]


def test_the_rows_of_several_partitions_are_taken_apart():
    found = read([3, 5], [5, 3], [7], [3])
    assert sorted(found) == [([3, 3, 3], [0, 3, 5]), ([5, 5], [1, 2]), ([7], [4])]


def test_rows_are_read_as_they_come():
    taken = []

    def watched():
        for batch in batches([3], [3], [3]):
            taken.append(len(taken))
            yield batch

    partition = next(iter(_Partitions(watched())))
    next(partition)
    assert taken == [0]


def test_a_partition_that_is_not_read_to_its_end_is_not_read_again():
    found = [
        next(pieces)[0]["subpartition"] for pieces in _Partitions(batches([3], [3, 5], [3], [5]))
    ]
    assert found == [3, 5]


@pytest.fixture
def executor(tmp_path, monkeypatch):
    """An executor with two local directories, like those that Spark makes."""
    directories = [tmp_path / "blockmgr-a", tmp_path / "blockmgr-b"]
    for directory in directories:
        (directory / "0f").mkdir(parents=True)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, directories)))
    monkeypatch.setattr(kept_lifetime, "_PERIOD", 0.0)
    return directories


def kept_file(attempt):
    path = kept_files.path_in(kept_files.folder_for(attempt), "ab12", 3, attempt)
    path.write_text("pages")
    return path


def commit(directory, attempt):
    path = directory / "0f" / f"shuffle_7_{attempt}_0.index"
    path.touch()
    return path


def test_files_are_in_the_local_directories_in_turn(executor):
    paths = [kept_file(attempt) for attempt in (10, 11)]
    assert [path.parent.parent for path in paths] == executor


def test_a_file_lives_as_long_as_sparks_map_output(executor):
    kept, shuffle = kept_file(10), commit(executor[1], 10)
    for _ in range(2):
        kept_lifetime.sweep(executor)
        assert kept.exists()
    shuffle.unlink()
    kept_lifetime.sweep(executor)
    assert not kept.exists()


def test_a_file_that_was_read_goes_with_sparks_map_output(executor):
    kept, shuffle = kept_file(10), commit(executor[1], 10)
    kept_lifetime.mark_committed(str(kept))
    shuffle.unlink()
    kept_lifetime.sweep(executor)
    assert not kept.exists()


def test_a_file_without_map_output_is_deleted_once_it_is_old(executor, monkeypatch):
    kept = kept_file(10)
    commit(executor[0], 11)
    kept_lifetime.sweep(executor)
    assert kept.exists(), "its task may not have written its map output yet"
    monkeypatch.setattr(kept_lifetime, "_ABANDONED", -1.0)
    kept_lifetime.sweep(executor)
    assert not kept.exists()


def test_a_file_of_a_task_that_succeeded_goes_although_no_sweep_saw_its_map_output(executor):
    kept, shuffle = kept_file(10), commit(executor[1], 10)
    kept_lifetime.sweep(executor, {10})
    assert kept.exists()
    os.utime(kept)  # as if no sweep had seen it
    shuffle.unlink()
    kept_lifetime.sweep(executor, {9, 11})
    assert kept.exists()
    kept_lifetime.sweep(executor, {10})
    assert not kept.exists()


def test_other_files_are_left_alone(executor):
    folder = kept_file(10).parent
    others = [
        folder / "kept-ab12-3-10",
        folder / "kept-ab12-3-10-1.txt",
        executor[0] / "kept-ab12-3-12-1",
    ]
    for other in others:
        other.touch()
        os.utime(other, (1, 1))
    kept_lifetime.sweep(executor)
    assert all(other.exists() for other in others)


def test_a_sweep_is_not_repeated_at_once(executor, monkeypatch):
    monkeypatch.setattr(kept_lifetime, "_PERIOD", 1000.0)
    kept, shuffle = kept_file(10), commit(executor[0], 10)
    kept_lifetime.sweep(executor)
    shuffle.unlink()
    kept_lifetime.sweep(executor)
    assert kept.exists()


def test_nothing_is_swept_where_nothing_was_kept(executor):
    assert not kept_lifetime.sweep(executor)
    assert [path.name for path in executor[0].iterdir()] == ["0f"]
    assert not kept_lifetime.sweep(["/nonexistent"])


def test_a_sweep_says_whether_files_are_left(executor):
    _, shuffle = kept_file(10), commit(executor[1], 10)
    assert kept_lifetime.sweep(executor)
    shuffle.unlink()
    assert kept_lifetime.sweep(executor), "it has just deleted the last one"
    assert not kept_lifetime.sweep(executor)


def test_a_process_without_local_directories_cannot_keep(monkeypatch):
    for variable in ("SPARK_LOCAL_DIRS", "SPARK_EXECUTOR_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RuntimeError, match="SPARK_LOCAL_DIRS"):
        kept_files.folder_for(1)


def kept(number, index, file=None):
    return KeptSubpartition(number, 0, file, index)


@pytest.mark.parametrize("has_pages", [False, True])
def test_an_index_is_found_by_its_producer_and_read_as_it_was_written(executor, has_pages):
    pages = kept_file(10)
    file = str(pages) if has_pages else None
    write_indexes(pages, [kept(2, b"two", file), kept(7, b"", file), kept(9, b"nine", file)])
    found = kept_files.find_indexes("ab12", list(map(str, executor)))
    assert found == {3: {10: pages.with_name(pages.name + ".index")}}
    for number, index in ((2, b"two"), (7, b""), (9, b"nine")):
        assert read_index(found[3][10], number) == kept(number, index, file)
    assert read_index(found[3][10], 3) is None
    assert not kept_files.find_indexes("cd34", list(map(str, executor)))


ROW = {"subpartition": 1, "producer": 3, "pages": None, "file": None}


def test_on_one_host_the_newest_attempt_is_read_in_whatever_directory(executor):
    for attempt in (9, 12, 11, 10):
        write_indexes(kept_file(attempt), [kept(1, str(attempt).encode())])
    assert KeptLocations("ab12", None).of(ROW).index == b"12"


@pytest.mark.parametrize("succeeded", [9, 10, 12])
def test_on_several_hosts_the_attempt_that_succeeded_is_read(executor, monkeypatch, succeeded):
    # Spark copies a slow task to another host, and both attempts may leave files.
    for attempt in (9, 12):
        write_indexes(kept_file(attempt), [kept(1, str(attempt).encode())])
    served = {3: (succeeded, "10.0.0.2", 4711, b"p" * 16)}
    monkeypatch.setattr(kept_locations, "_ask", lambda _: served)
    found = KeptLocations("ab12", object()).of(ROW)
    if succeeded == 10:
        name = kept_files.partition_id("ab12", 3, 10)
        assert found == ChannelAddress("10.0.0.2", 4711, name, 1, b"p" * 16)
    else:
        assert found.index == str(succeeded).encode()


def test_indexes_of_other_executors_of_a_standalone_cluster_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_lifetime, "_PERIOD", 0.0)
    mine = tmp_path / "spark-1" / "executor-1" / "blockmgr-1"
    for place in (
        "spark-1/executor-1/blockmgr-1",
        "spark-1/executor-2/blockmgr-2",
        "spark-2/executor-3/blockmgr-3",
    ):
        folder = tmp_path / place / "headgate"
        folder.mkdir(parents=True)
        number = int(place[-1])
        pages = kept_files.path_in(folder, "ab12", number, number)
        write_indexes(pages, [kept(1, place.encode())])
    assert sorted(kept_files.find_indexes("ab12", [str(mine)])) == [1, 2, 3]


@pytest.mark.parametrize("size", range(46))
def test_indexes_that_are_cut_off_are_refused(executor, size):
    pages = kept_file(10)
    write_indexes(pages, [kept(2, b"two"), kept(7, b"seven")])
    path = kept_files.find_indexes("ab12", list(map(str, executor)))[3][10]
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(IntegrityError, match="cut off"):
        read_index(path, 7)


def test_indexes_are_swept_with_their_pages(executor):
    pages, shuffle = kept_file(10), commit(executor[1], 10)
    write_indexes(pages, [kept(2, b"two", str(pages))])
    assert kept_lifetime.sweep(executor)
    shuffle.unlink()
    kept_lifetime.sweep(executor)
    assert not list(pages.parent.glob("kept-*"))


def test_a_producer_whose_output_is_gone_is_named(executor):
    row = {"subpartition": 4, "producer": 3, "pages": None, "file": None}
    with pytest.raises(PartitionNotFoundError, match="subpartition 4 of producer 3"):
        KeptLocations("ab12", None).of(row)
    pages = kept_file(10)
    write_indexes(pages, [kept(4, b"four")])
    known = KeptLocations("ab12", None)
    assert known.of(row) == kept(4, b"four")
    pages.with_name(pages.name + ".index").unlink()
    with pytest.raises(PartitionNotFoundError, match="subpartition 4 of producer 3") as caught:
        known.of(row)
    assert "No such file" in str(caught.value.__cause__)
