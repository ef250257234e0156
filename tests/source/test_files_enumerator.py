"""Listing of files, order of splits, checkpoints, and discovery of new files."""

from __future__ import annotations

import json
import pickle
import threading
import zlib
from dataclasses import replace

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.calls import count_calls
from tests.kit.contexts import FakeEnumeratorContext, enumerated, read_all, table_of

from headgate.errors import OptionError, SourceError, StateVersionError
from headgate.source import Boundedness, FileSource, ReaderInfo, read
from headgate.source.files import FileCheckpoint
from headgate.source.files.format import grouped
from headgate.source.files.listing import Files
from headgate.source.files.pending import PendingSplits
from headgate.source.files.split import FileSplit, ListedFile

SCHEMA = pa.schema([("id", pa.int64())])


def write(path, first, rows=10, group=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(first, first + rows)}), path, row_group_size=group)


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        write(tmp_path / f"{number}.parquet", number * 10, 10, 5)
    return tmp_path


def ids_of(source, splits):
    return sorted(table_of(source, read_all(source, splits))["id"].to_pylist())


class TestListing:
    @pytest.fixture
    def tree(self, tmp_path):
        names = ["a.x", "b/c.x", "b/_d.x", "_e/f.x", ".g/h.x", "b/i.y", "b/j/k.x", ".l.x"]
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x")
        return tmp_path

    @pytest.mark.parametrize(
        ("pattern", "wanted"),
        [
            ("", "a.x b/c.x b/i.y b/j/k.x"),
            ("*.x", "a.x"),
            ("*/*.x", "b/c.x"),
            ("**/*.x", "a.x b/c.x b/j/k.x"),
            ("b/?.[xy]", "b/c.x b/i.y"),
            ("b/**", "b/c.x b/i.y b/j/k.x"),
            ("nothing/*", ""),
            ("b/_d.x", "b/_d.x"),
        ],
    )
    def test_folders_and_patterns(self, tree, pattern, wanted):
        found = Files(tree / pattern).listed(missing_ok=False)
        assert [file.path for file in found] == [str(tree / name) for name in wanted.split()]
        assert all(file.size == 1 and file.modified > 0 for file in found)

    def test_a_folder_with_an_ignored_name_above_counts(self, tmp_path):
        write(tmp_path / "_x" / "a.parquet", 0)
        assert len(Files(tmp_path / "_x").listed(missing_ok=False)) == 1

    def test_a_name_that_looks_like_a_pattern(self, tmp_path):
        (tmp_path / "a[1].x").write_text("x")
        assert len(Files(tmp_path / "a[1].x").listed(missing_ok=False)) == 1

    def test_paths_given_twice_are_one(self, tree):
        files = Files([tree, tree / "a.x", str(tree)])
        assert len(files.listed(missing_ok=False)) == 4

    def test_uris_and_file_systems(self, folder):
        wanted = list(range(60))
        for source in (
            FileSource(f"file://{folder}"),
            FileSource(folder.name, filesystem=f"file://{folder.parent}"),
            FileSource(
                folder.name,
                filesystem=pafs.SubTreeFileSystem(str(folder.parent), pafs.LocalFileSystem()),
            ),
        ):
            assert ids_of(source, enumerated(source)) == wanted

    def test_paths_of_a_remote_file_system_are_listed_side_by_side(self, tmp_path):
        for name in "ab":
            (tmp_path / name).write_text("x")
        both = threading.Barrier(2, timeout=60)

        class Remote:
            def get_file_info(self, path):
                both.wait()
                return pafs.LocalFileSystem().get_file_info(path)

        paths = [f"{tmp_path}/{name}" for name in "ab"]
        listed = Files(paths, Remote()).listed(missing_ok=False)
        assert [file.path for file in listed] == paths

    def test_paths_of_two_file_systems(self):
        with pytest.raises(OptionError, match="more than one file system"):
            FileSource(["file:///a", "mock:///a"])


class TestOrder:
    SPLITS = tuple(
        FileSplit(f"/{n}", "parquet", 0, 1, size, 9, hosts=hosts)
        for n, (size, hosts) in enumerate(
            [(5, ["a"]), (9, ["b"]), (7, ["a", "B"]), (1, []), (9, ["c"])]
        )
    )

    def taken(self, pending, host):
        split = pending.take(host)
        return None if split is None else split.path

    def test_the_largest_first(self):
        pending = PendingSplits(self.SPLITS)
        assert len(pending) == 5
        order = [self.taken(pending, None) for _ in range(6)]
        assert order == ["/1", "/4", "/2", "/0", "/3", None]

    def test_those_of_the_host_before_others(self):
        pending = PendingSplits(self.SPLITS)
        assert [self.taken(pending, "a") for _ in range(3)] == ["/2", "/0", "/1"]
        assert self.taken(pending, "b") == "/4"
        pending.add([self.SPLITS[1]])
        assert self.taken(pending, "B") == "/1"

    @given(st.lists(st.sampled_from(["take", "a", "b", "back"]), max_size=30))
    @settings(deadline=None)
    def test_each_is_taken_once(self, steps):
        pending, out = PendingSplits(self.SPLITS), []
        for step in steps:
            if step == "back":
                pending.add(out[:2])
                del out[:2]
            else:
                split = pending.take(None if step == "take" else step)
                out += [] if split is None else [split]
            ids = [split.split_id for split in [*out, *pending.all()]]
            assert sorted(ids) == sorted(split.split_id for split in self.SPLITS)

    def test_locality_of_a_source(self, folder):
        source = FileSource(folder, hosts=lambda path: ["near"] if path[-9] in "14" else ["far"])
        context = FakeEnumeratorContext(2)
        enumerator = source.create_enumerator(context)
        enumerator.start()
        context.run()
        for _ in range(2):
            enumerator.handle_split_request(0, "near")
        enumerator.handle_split_request(1, "nowhere")
        assert sorted(split.path[-9] for split in context.assigned[0]) == ["1", "4"]
        assert context.assigned[1][0].path[-9] in "0235"
        assert context.assigned[1][0].hosts == ("far",)

    def test_parts_are_put_together_up_to_a_limit(self):
        assert list(grouped([3, 3, 3, -1, 9, 1, -1, -1], 6)) == [
            (0, 2, 6),
            (2, 3, 3),
            (4, 5, 9),
            (5, 6, 1),
        ]
        assert list(grouped([], 6)) == []
        assert list(grouped([-1, -1], 6)) == []

    def test_small_inputs_are_cut_for_all_readers(self, tmp_path, monkeypatch):
        monkeypatch.setattr("headgate.source.files.format._SMALLEST_SPLIT", 1)
        write(tmp_path / "a.parquet", 0, 10_000, 100)
        few = len(enumerated(FileSource(tmp_path), readers=1))
        assert few < len(enumerated(FileSource(tmp_path), readers=4)) <= 100


class TestRequests:
    def test_early_ones_are_answered_when_the_files_are_listed(self, folder):
        context = FakeEnumeratorContext(3)
        enumerator = FileSource(folder).create_enumerator(context)
        enumerator.start()
        for subtask in range(3):
            enumerator.handle_split_request(subtask, None)
        assert enumerator.total_splits is None
        assert not context.all
        assert not context.told_no_more
        context.run()
        assert [len(context.assigned[subtask]) for subtask in range(3)] == [1, 1, 1]
        assert enumerator.total_splits == 6

    def test_a_reader_that_is_gone_gets_nothing(self, folder):
        context = FakeEnumeratorContext(2)
        enumerator = FileSource(folder).create_enumerator(context)
        enumerator.start()
        enumerator.handle_split_request(0, None)
        enumerator.handle_split_request(1, None)
        del context.registered_readers[0]
        context.run()
        assert not context.assigned[0]
        assert len(context.assigned[1]) == 1

    def test_what_a_lost_reader_had_goes_to_another(self, folder):
        context = FakeEnumeratorContext(2)
        enumerator = FileSource(folder).create_enumerator(context)
        enumerator.start()
        context.run()
        for _ in range(7):
            enumerator.handle_split_request(0, None)
        assert context.told_no_more == [0]
        enumerator.add_splits_back(context.assigned[0][:2], 0)
        for _ in range(3):
            enumerator.handle_split_request(1, None)
        assert context.assigned[1] == context.assigned[0][:2]
        assert context.told_no_more == [0, 1]
        assert enumerator.total_splits == 6

    def test_many_files_are_cut_in_several_pieces_of_work(self, tmp_path):
        for number in range(40):
            write(tmp_path / f"{number}.parquet", number)
        context = FakeEnumeratorContext()
        enumerator = FileSource(tmp_path).create_enumerator(context)
        enumerator.start()
        context.do(*context.work.pop(0))
        assert len(context.work) == 3
        context.do(*context.work.pop(1))
        assert enumerator.total_splits is None
        assert len(enumerator.snapshot_state(1).pending) == 16
        assert len(enumerator.snapshot_state(1).unplanned) == 24
        context.run()
        assert enumerator.total_splits == 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for number in range(20):
        write(folder / f"{number}.parquet", number * 4, 4, 2)
    return folder


class TestCheckpoints:
    @given(st.data())
    @settings(deadline=None, max_examples=40)
    def test_at_any_moment_they_leave_exactly_the_rest(self, folders, data):
        source = FileSource(folders, split_size=1)
        context = FakeEnumeratorContext()
        enumerator = source.create_enumerator(context)
        serializer = source.enumerator_checkpoint_serializer
        enumerator.start()
        for _ in range(data.draw(st.integers(0, 60))):
            step = data.draw(st.sampled_from(["work", "request", "request", "restore"]))
            if step == "work" and context.work:
                place = data.draw(st.integers(0, len(context.work) - 1))
                context.do(*context.work.pop(place))
            elif step == "request":
                enumerator.handle_split_request(0, None)
            elif step == "restore":
                state = serializer.serialize(enumerator.snapshot_state(1))
                before = context.all
                context = FakeEnumeratorContext()
                context.assigned[0] = before
                enumerator = source.restore_enumerator(context, serializer.deserialize(1, state))
                enumerator.start()
        state = serializer.deserialize(1, serializer.serialize(enumerator.snapshot_state(1)))
        rest = enumerated(source, checkpoint=state)
        ids = [split.split_id for split in [*context.all, *rest]]
        assert sorted(ids) == sorted(split.split_id for split in enumerated(source))

    @given(st.data())
    @settings(deadline=None, max_examples=25)
    def test_of_a_whole_read(self, folders, data):
        source = FileSource(folders, split_size=1, batch_rows=1)
        found, checkpoint = [], None
        for _ in range(3):
            readers = data.draw(st.integers(1, 3))
            with read(source, readers, checkpoint=checkpoint) as records:
                for _ in range(data.draw(st.integers(0, 30))):
                    batch = next(records, None)
                    found += [] if batch is None else batch["id"].to_pylist()
                checkpoint = records.checkpoint()
        with read(source, 2, checkpoint=checkpoint) as records:
            found += [number for batch in records for number in batch["id"].to_pylist()]
        assert sorted(found) == list(range(80))

    @pytest.mark.parametrize("position", range(31))
    def test_a_split_goes_on_in_the_middle(self, tmp_path, position):
        write(tmp_path / "a.parquet", 0, 30, 7)
        source = FileSource(tmp_path, batch_rows=4)
        (split,) = enumerated(source)
        rest = [replace(split, position=position)]
        assert ids_of(source, rest) == list(range(position, 30))

    def test_bytes_that_are_no_checkpoint(self, folder):
        serializer = FileSource(folder).enumerator_checkpoint_serializer
        good = serializer.serialize(FileCheckpoint(unplanned=[ListedFile("a", 1, None)]))
        assert serializer.deserialize(1, good).unplanned == (ListedFile("a", 1, None),)
        wrong = zlib.compress(json.dumps({"listed": True}).encode())
        for version, data in ((3, good), (1, b"x"), (1, wrong)):
            with pytest.raises(StateVersionError):
                serializer.deserialize(version, data)


class TestDiscovery:
    def source(self, folder):
        return FileSource(folder, schema=SCHEMA, discovery_interval="5s")

    def test_new_files_are_found_once(self, tmp_path):
        source = self.source(tmp_path / "later")
        assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
        context = FakeEnumeratorContext()
        enumerator = source.create_enumerator(context)
        enumerator.start()
        assert [period for _, _, period in context.periodic] == [5.0]
        enumerator.handle_split_request(0, None)
        context.tick()
        assert context.all == []
        for number in range(4):
            write(tmp_path / "later" / f"{number}.parquet", number * 10)
            write(tmp_path / "later" / f"_{number}.parquet", number * 10)
            context.tick()
            context.tick()
            assert len(context.all) == number + 1
            enumerator.handle_split_request(0, None)
        assert context.told_no_more == []
        assert enumerator.total_splits is None
        assert ids_of(source, context.all) == list(range(40))

    def test_a_checkpoint_knows_the_files(self, tmp_path):
        source = self.source(tmp_path)
        write(tmp_path / "a.parquet", 0)
        write(tmp_path / "b.parquet", 10)
        context = FakeEnumeratorContext()
        enumerator = source.create_enumerator(context)
        enumerator.start()
        enumerator.handle_split_request(0, None)
        context.tick()
        serializer = source.enumerator_checkpoint_serializer
        state = serializer.deserialize(2, serializer.serialize(enumerator.snapshot_state(1)))
        assert len(state.known) == 2
        assert len(state.pending) == 1
        write(tmp_path / "c.parquet", 20)
        after = FakeEnumeratorContext()
        enumerator = source.restore_enumerator(after, state)
        enumerator.start()
        for _ in range(3):
            enumerator.handle_split_request(0, None)
            after.tick()
        assert ids_of(source, [*context.all, *after.all]) == list(range(30))

    def test_a_file_that_is_written_again_is_an_error(self, tmp_path):
        source = self.source(tmp_path)
        write(tmp_path / "a.parquet", 0)
        context = FakeEnumeratorContext()
        enumerator = source.create_enumerator(context)
        enumerator.start()
        enumerator.handle_split_request(0, None)
        context.tick()
        assert ids_of(source, context.all) == list(range(10))
        serializer = source.enumerator_checkpoint_serializer
        state = serializer.deserialize(2, serializer.serialize(enumerator.snapshot_state(1)))
        write(tmp_path / "a.parquet", 0, 20)
        for restored in (enumerator, source.restore_enumerator(FakeEnumeratorContext(), state)):
            restored.start()
            with pytest.raises(SourceError, match=r"a\.parquet has changed since") as caught:
                restored._context.tick()
            assert "as _name, and rename it" in caught.value.remedy

    def test_a_checkpoint_of_version_1_knows_only_paths(self, tmp_path):
        source = self.source(tmp_path)
        write(tmp_path / "a.parquet", 0)
        fields = {"listed": True, "made": 1, "pending": [], "unplanned": []}
        known = {"known": [str(tmp_path / "a.parquet")]}
        old = zlib.compress(json.dumps({**fields, **known}).encode())
        state = source.enumerator_checkpoint_serializer.deserialize(1, old)
        context = FakeEnumeratorContext()
        enumerator = source.restore_enumerator(context, state)
        enumerator.start()
        write(tmp_path / "b.parquet", 10)
        enumerator.handle_split_request(0, None)
        context.tick()
        assert ids_of(source, context.all) == list(range(10, 20))

    def test_a_file_that_is_half_written_says_to_rename(self, tmp_path):
        source = self.source(tmp_path)
        write(tmp_path / "whole", 0)
        half = (tmp_path / "whole").read_bytes()[:100]
        (tmp_path / "whole").unlink()
        (tmp_path / "a.parquet").write_bytes(half)
        context = FakeEnumeratorContext()
        source.create_enumerator(context).start()
        with pytest.raises(SourceError, match=r"a\.parquet cannot be cut into splits") as caught:
            context.tick()
        assert "write a file as _name, and rename it" in caught.value.remedy

    def test_a_file_that_goes_on_growing_is_an_error(self, tmp_path):
        source = self.source(tmp_path)
        write(tmp_path / "a.parquet", 0)
        context = FakeEnumeratorContext()
        enumerator = source.create_enumerator(context)
        enumerator.start()
        enumerator.handle_split_request(0, None)
        context.tick()
        write(tmp_path / "a.parquet", 0, 20)
        with pytest.raises(SourceError, match="has changed since it was listed"):
            read_all(source, context.all)

    def test_files_that_arrive_while_it_is_read(self, tmp_path):
        source = FileSource(tmp_path, schema=SCHEMA, discovery_interval="20ms")
        found, checkpoint = [], None
        arrived = threading.Event()

        def arrive():
            for number in range(8):
                write(tmp_path / f"_{number}.parquet", number * 10)
                (tmp_path / f"_{number}.parquet").rename(tmp_path / f"{number}.parquet")
            arrived.set()

        writer = threading.Thread(target=arrive)
        writer.start()
        for _ in range(4):
            with read(source, 2, checkpoint=checkpoint) as records:
                found += [number for _ in range(2) for number in next(records)["id"].to_pylist()]
                checkpoint = records.checkpoint()
        writer.join()
        assert sorted(found) == list(range(80))


def test_it_travels_with_its_schema(folder, tmp_path_factory):
    source = FileSource(folder, columns=["id"])
    assert source.schema == SCHEMA
    other = pickle.loads(pickle.dumps(source))
    for path in folder.iterdir():
        path.unlink()
    assert other.schema == SCHEMA
    assert other.name == f"FileSource(parquet, {folder})"


def test_a_reader_registered_again_asks_again(folder):
    context = FakeEnumeratorContext(1)
    enumerator = FileSource(folder).create_enumerator(context)
    enumerator.start()
    enumerator.handle_split_request(0, None)
    enumerator.add_splits_back([], 0)
    context.registered_readers = {0: ReaderInfo(0, "b")}
    enumerator.add_reader(0)
    context.run()
    assert context.all == []
    enumerator.handle_split_request(0, None)
    assert len(context.all) == 1


def test_a_checkpoint_of_many_files_takes_few_calls_per_file():
    split = FileSplit("/data/a.parquet", "parquet", 0, 4, 10, 10, 5, ("host",), 3)
    splits = tuple(replace(split, path=f"/data/{n}.parquet") for n in range(1000))
    listed = tuple(ListedFile(one.path, 10, None) for one in splits)
    state = FileCheckpoint(True, 2000, splits, listed, listed)
    serializer = FileSource("/data", schema=SCHEMA).enumerator_checkpoint_serializer
    # A call per field, and one for all fields.
    assert count_calls(lambda: serializer.serialize(state)) < 16 * 2000
    assert serializer.deserialize(serializer.version, serializer.serialize(state)) == state
