"""A sink follows no link and obeys no journal that another user put below its path."""

import contextlib
import dataclasses
import os
import stat

import pytest
from pyarrow import fs
from tests.kit import sinks
from tests.kit.planting import (
    ACTIONS,
    JOB,
    PART,
    QUERY,
    STAGED,
    TEXT,
    actions,
    move,
    plant,
    refused,
    stream,
)

from headgate.errors import HeadgateWarning, OptionError, SinkError
from headgate.sink import CommitterContext, FileSink, Recovered, WriterContext, write
from headgate.sink.journal import Journal
from headgate.sink.recovery import JobFacts
from headgate.sink.staging import Committable, StagedFile


@pytest.fixture
def private(tmp_path):
    """Return a folder beside the sink's, whose files no sink may touch."""
    folder = tmp_path / "private"
    (folder / "a1").mkdir(parents=True)
    for name in ("a.txt", "b.parquet", "a1/part-00000.parquet"):
        (folder / name).write_bytes(TEXT)
    return folder


ESCAPES = {
    "source-up": move("../../private/a.txt"),
    "source-up-later": move(f"_staging/{JOB}/../../../../private/a.txt"),
    "source-absolute": move("/etc/hostname"),
    "source-beside": move("k=1/a.parquet"),
    "source-of-another-job": move("_staging/other/a1/part-00000.parquet"),
    "source-the-journal": move(f"_staging/{JOB}/_commit.json"),
    "source-empty": move(""),
    "source-a-number": move(7),
    "target-up": move(target="../../private/a.txt"),
    "target-absolute": move(target="/part-f00d-00000-00000.parquet"),
    "target-hidden": move(target="_SUCCESS"),
    "target-of-another-job": move(target="part-0abc-00000-00000.parquet"),
    "target-below": move(target=f"part-{JOB}-00000-/../../../private/a.txt"),
    "target-not-the-source's": move(target=f"part-{JOB}-00000-00001.parquet"),
    "size-a-text": move(size="12"),
    "size-below-0": move(size=-1),
    "the-same-twice": {"moves": [*move()["moves"], *move()["moves"]]},
    "remove-up": {"removes": ["../../private/a.txt"]},
    "remove-up-later": {"removes": ["k=1/../../../private/a.txt"]},
    "remove-absolute": {"removes": ["/etc/hostname"]},
    "remove-hidden": {"removes": ["_ours/a.txt"]},
    "remove-here": {"removes": ["."]},
    "remove-nothing": {"removes": [""]},
    "remove-empty-names": {"removes": ["k=1//a.parquet"]},
    "remove-a-zero": {"removes": ["k=1/a\0.parquet"]},
    "remove-the-target": {**move(), "removes": [PART]},
    "marker-up": {"marker": "../../private/marker"},
    "marker-absolute": {"marker": "/tmp/marker"},
    "marker-of-another-query": {"marker": "_headgate/commits/other/7"},
    "marker-of-no-batch": {"name": "q-..", "job": "q-..", "marker": "_headgate/commits/q/.."},
    "another-job": {"job": "0abc"},
    "rows-a-text": {"rows": "many"},
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("escape", ESCAPES)
def test_a_journal_with_other_paths_is_not_obeyed(tmp_path, path, private, escape, action):
    plant(path, **ESCAPES[escape])
    (path / "k=1").mkdir()
    (path / "k=1" / "a.parquet").write_bytes(TEXT)
    (path / "_ours").mkdir()
    (path / "_ours" / "a.txt").write_bytes(TEXT)
    before = sinks.snapshot(tmp_path)
    refused(path, action, r"the journal .*_commit\.json cannot be read: ")
    assert sinks.snapshot(tmp_path) == before


def test_the_planted_journal_would_be_obeyed_with_right_paths(path, private):
    """The tests above plant what a recovery takes for a journal."""
    plant(path, **move())
    assert FileSink(path).recover() == Recovered((JOB,))
    assert (path / PART).read_bytes() == TEXT
    assert sinks.left(path) == []


@pytest.mark.parametrize("escape", ["source-up", "target-up", "remove-up", "marker-up"])
def test_object_stores_do_not_obey_it_either(escape):
    memory = fs._MockFileSystem()
    for folder in ("private", f"deep/out/_staging/{JOB}/a1"):
        memory.create_dir(folder)
    fields = {"moves": (), "removes": (), "marker": None, **ESCAPES[escape]}
    journal = Journal(JOB, tuple(fields["moves"]), tuple(fields["removes"]), fields["marker"])
    for name, text in (
        ("private/a.txt", TEXT),
        (f"deep/out/{STAGED}", TEXT),
        (f"deep/out/_staging/{JOB}/_commit.json", journal.to_json()),
    ):
        with memory.open_output_stream(name) as stream:
            stream.write(text)
    everything = fs.FileSelector("", recursive=True)
    before = [(f.path, f.size) for f in memory.get_file_info(everything)]
    with pytest.raises(SinkError, match="cannot be read"):
        FileSink("deep/out", filesystem=memory).recover()
    assert [(f.path, f.size) for f in memory.get_file_info(everything)] == before


@pytest.mark.parametrize("name", ["../up", "a/b", "..", "", ".hidden", "a" * 201, 7])
def test_names_that_lead_elsewhere_are_refused(name):
    for call in (
        lambda: CommitterContext(name),
        lambda: WriterContext(name),
        lambda: WriterContext("job", attempt=name),
    ):
        with pytest.raises(OptionError, match="is no valid name"):
            call()


def test_a_committable_that_leads_elsewhere_is_not_committed(tmp_path, path, private):
    committer, found = sinks.begun(path)
    file = sinks.staged(path)
    before = sinks.snapshot(tmp_path)
    right = Committable.from_bytes(found)
    for attempt, name in (
        ("../../../private", "a.txt"),
        (right.attempt, "../../../../private/a.txt"),
    ):
        files = (StagedFile(name, 3, len(TEXT)),)
        wrong = dataclasses.replace(right, attempt=attempt, files=files).to_bytes()
        with pytest.raises(SinkError) as caught:
            committer.commit(0, [wrong])
        assert "the commit is decided" not in str(caught.value)
        assert sinks.snapshot(tmp_path) == before
    assert committer.commit(0, [found]).rows == 3
    assert not file.exists()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_a_staging_folder_that_is_none(tmp_path, path, private, action, kind):
    path.mkdir(parents=True)
    put(path / "_staging", kind, private)
    before = sinks.snapshot(tmp_path)
    said = {"link": "symbolic link", "pipe": "neither a file nor a folder", "file": "no folder"}
    refused(path, action, said[kind])
    assert sinks.snapshot(tmp_path) == before


def put(where, kind, target):
    """Put something at a path: a link to a target, a hard link to it, a pipe, a file or a folder."""
    if kind == "link":
        where.symlink_to(target)
    elif kind == "hard link":
        where.hardlink_to(target)
    elif kind == "pipe":
        os.mkfifo(where)
    elif kind == "file":
        where.write_bytes(TEXT)
    else:
        where.mkdir()


@pytest.mark.parametrize("action", ACTIONS)
def test_a_link_for_a_job_stays_with_a_warning(tmp_path, path, private, action):
    (path / "_staging").mkdir(parents=True)
    (path / "_staging" / JOB).symlink_to(private)
    journal = Journal(JOB, tuple(move()["moves"]))
    (private / "_commit.json").write_bytes(journal.to_json())
    before = sinks.snapshot(private)
    with pytest.warns(
        HeadgateWarning, match="another user's job are left: .* symbolic link"
    ) as told:
        actions(path)[action]()
    assert told[0].message.code == "HG-6004"
    assert sinks.snapshot(private) == before
    assert sinks.left(path) == ["_staging", f"_staging/{JOB}"]
    assert sinks.rows(path) == ([] if action in {"recover", "stream"} else [0, 1, 2])


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["_commit.json", "_job.json"])
def test_a_file_of_a_job_that_is_none(tmp_path, path, private, name, kind, action):
    (path / "_staging" / JOB).mkdir(parents=True)
    text = {"_commit.json": Journal(JOB, ()), "_job.json": JobFacts(sinks.dead_owner())}[
        name
    ].to_json()
    (private / "text").write_bytes(text)
    put(path / "_staging" / JOB / name, kind, private / "text")
    before = sinks.snapshot(tmp_path)
    said = {
        "link": "symbolic link",
        "hard link": "hard link",
        "pipe": "neither",
        "folder": "no file",
    }
    refused(path, action, said[kind])
    assert sinks.snapshot(tmp_path) == before


KINDS = {"link": "symbolic link", "hard link": "hard link", "pipe": "neither", "folder": "no file"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_staged_file_that_is_none_is_not_committed(tmp_path, path, private, kind):
    committer, found = sinks.begun(path)
    file = sinks.staged(path)
    replace(file, kind, private)
    before = sinks.snapshot(tmp_path)
    with pytest.raises(SinkError, match=KINDS[kind]) as caught:
        committer.commit(0, [found])
    assert str(file) in str(caught.value)
    assert "the commit is decided" not in str(caught.value)
    assert sinks.snapshot(tmp_path) == before
    committer.abort_unknown([])
    assert not path.exists()
    assert (private / "a.txt").read_bytes() == file_bytes(before, "private/a.txt")


def replace(file, kind, private):
    """Replace a staged file by something else, with the same size where that has a size."""
    (private / "a.txt").write_bytes(file.read_bytes())
    file.unlink()
    put(file, kind, private / "a.txt")


def file_bytes(snapshot, name):
    return snapshot[name][-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_staged_file_that_is_none_is_not_recovered(path, private, kind):
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    replace(file, kind, private)
    before = sinks.snapshot(private)
    with pytest.raises(SinkError, match=KINDS[kind]) as caught:
        FileSink(path).recover()
    assert str(file) in str(caught.value)
    assert "decided" in str(caught.value)
    assert sinks.snapshot(private) == before
    assert sinks.rows(path) == []
    assert list(path.glob("part-*")) == []


@pytest.mark.parametrize("size", [0, 1, -1, 1000])
def test_a_staged_file_of_another_size_is_not_recovered(path, size):
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    text = file.read_bytes()
    file.write_bytes(text[:size] if size <= 0 else text + bytes(size))
    with pytest.raises(SinkError, match="a staged file of a decided commit has changed") as caught:
        FileSink(path).recover()
    assert f"{len(text)} bytes" in str(caught.value)
    assert list(path.glob("part-*")) == []
    file.write_bytes(text)
    assert FileSink(path).recover().completed
    assert sinks.rows(path) == [0, 1, 2]


def test_a_link_for_an_attempt_is_removed_and_not_its_target(path, private):
    sinks.begun(path, sinks.dead_owner())
    file = sinks.staged(path)
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(private)
    before = sinks.snapshot(private)
    assert FileSink(path).recover().removed
    assert sinks.snapshot(private) == before
    assert not path.exists()


def test_a_link_for_the_attempt_of_a_decided_commit_is_not_followed(path, private):
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    (private / file.name).write_bytes(file.read_bytes())
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(private)
    before = sinks.snapshot(private)
    for action in ("recover", "append"):
        said = refused(path, action, "symbolic link")
        assert "the commit is decided" in said
    assert sinks.snapshot(private) == before
    assert list(path.glob("part-*")) == []


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
@pytest.mark.parametrize("dangles", [True, False])
def test_a_link_for_the_success_file_is_replaced(tmp_path, path, private, mode, dangles):
    path.mkdir(parents=True)
    target = private / ("missing" if dangles else "a.txt")
    (path / "_SUCCESS").symlink_to(target)
    before = sinks.snapshot(private)
    write(sinks.numbers(0, 3), FileSink(path, mode=mode))
    assert sinks.snapshot(private) == before
    assert stat.S_ISREG((path / "_SUCCESS").lstat().st_mode)


def test_a_link_for_the_success_file_during_the_commit_is_refused(path, private):
    faults = sinks.Faults()

    def plant_link(name, where):
        if name == "open_output" and where.endswith("_SUCCESS"):
            (path / "_SUCCESS").symlink_to(private / "missing")

    faults.step = plant_link
    before = sinks.snapshot(private)
    with pytest.raises(SinkError, match=r"_SUCCESS is a symbolic link") as caught:
        write(sinks.numbers(0, 3), sinks.faulty(path, faults, mode="append"))
    assert "the commit is decided" in str(caught.value)
    assert sinks.snapshot(private) == before
    assert FileSink(path).recover() == Recovered(), "the job's process lives"
    write(sinks.numbers(3, 6), FileSink(path, mode="overwrite"))
    assert sinks.rows(path) == [3, 4, 5]
    assert sinks.left(path) == []
    assert sinks.snapshot(private) == before


def test_data_behind_links_is_neither_read_nor_removed(tmp_path, path, private):
    path.mkdir(parents=True)
    (path / "k=1").symlink_to(private)
    (path / "one.parquet").symlink_to(private / "b.parquet")
    before = sinks.snapshot(private)
    with pytest.raises(SinkError, match="have  2 files, the first k=1"):
        write(sinks.numbers(0, 3), FileSink(path))
    write(sinks.numbers(0, 3), FileSink(path, mode="overwrite"))
    assert sinks.rows(path) == [0, 1, 2]
    assert {file.name.partition("-")[0] for file in path.iterdir()} == {"part", "_SUCCESS"}
    assert sinks.snapshot(private) == before


def test_a_folder_that_becomes_a_link_before_its_files_are_removed(path, private):
    (path / "k=1").mkdir(parents=True)
    (path / "k=1" / "b.parquet").write_bytes(TEXT)
    faults = sinks.Faults()

    def swap(name, where):
        if name == "move" and where.endswith(".parquet"):
            (path / "k=1" / "b.parquet").unlink()
            (path / "k=1").rmdir()
            (path / "k=1").symlink_to(private)

    faults.step = swap
    before = sinks.snapshot(private)
    with pytest.raises(SinkError, match="k=1 is a symbolic link"):
        write(sinks.numbers(0, 3), sinks.faulty(path, faults, mode="overwrite"))
    assert sinks.snapshot(private) == before


def test_very_many_folders_one_in_another_are_at_most_an_error(path):
    path.mkdir(parents=True)
    deepest = str(path)
    made = []
    for _ in range(1200):
        deepest += "/d"
        os.mkdir(deepest)  # noqa: PTH102 - the path is a text
        made.append(deepest)
    # Releases of Python before some 3.12 look through folders by recursion.
    walks = True
    try:
        list(os.fwalk(path))
    except RecursionError:
        walks = False
    deep = pytest.raises(SinkError, match="too many folders, one in another")
    with contextlib.nullcontext() if walks else deep:
        write(sinks.numbers(0, 3), FileSink(path))
    if not walks:
        write(sinks.numbers(0, 3), FileSink(path, mode="append"))
    assert len(list(path.glob("part-*"))) == 1
    for folder in reversed(made):
        os.rmdir(folder)  # noqa: PTH106 - the path is a text


@pytest.mark.parametrize("name", ["_headgate", "_headgate/commits", f"_headgate/commits/{QUERY}"])
def test_links_for_the_folders_of_markers_are_refused(tmp_path, path, private, name):
    (path / name).parent.mkdir(parents=True)
    (path / name).symlink_to(private)
    before = sinks.snapshot(tmp_path)
    refused(path, "stream", "symbolic link")
    assert sinks.snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_marker_that_is_no_file_hides_no_batch(tmp_path, path, private, kind):
    folder = path / "_headgate/commits" / QUERY
    folder.mkdir(parents=True)
    put(folder / "99", kind, private / "a.txt")
    before = sinks.snapshot(tmp_path)
    refused(path, "stream", kind if "link" in kind else "neither")
    assert sinks.snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "file"])
def test_a_staged_file_is_made_and_not_found(path, private, kind):
    """A stream's writer makes the folders of its job, so another user could have been first."""
    sink = FileSink(path, mode="append")
    folder = path / "_staging" / f"{JOB}-0" / "a1-0"
    folder.mkdir(parents=True)
    put(folder / "part-00000.parquet", kind, private / "a.txt")
    before = sinks.snapshot(private)
    with (
        pytest.raises(SinkError, match=r"cannot write .*File exists"),
        sink.create_writer(WriterContext(JOB, attempt="a1")) as writer,
    ):
        writer.write(sinks.numbers(0, 3)[0])
    assert sinks.snapshot(private) == before


def test_only_folders_above_the_sink_can_have_been_made_for_it(tmp_path, path):
    empty, inside = tmp_path / "empty", path / "empty"
    for folder in (empty, inside, path / "_staging" / JOB):
        folder.mkdir(parents=True)
    for made in ([empty], [inside], [path / ".." / ".." / "empty"], ["", empty], [7]):
        facts = JobFacts(sinks.dead_owner(), tuple(str(m) if m != 7 else 7 for m in made))
        (path / "_staging" / JOB).mkdir(parents=True, exist_ok=True)
        (path / "_staging" / JOB / "_job.json").write_bytes(facts.to_json())
        FileSink(path, stale_after=0).recover()
        assert empty.exists(), made
        assert inside.exists(), made
    inside.rmdir()
    facts = JobFacts(sinks.dead_owner(), (str(path), str(path.parent)))
    (path / "_staging" / JOB).mkdir(parents=True, exist_ok=True)
    (path / "_staging" / JOB / "_job.json").write_bytes(facts.to_json())
    FileSink(path).recover()
    assert not path.parent.exists()


def test_the_path_itself_may_have_links(tmp_path, path):
    (tmp_path / "real" / "out").mkdir(parents=True)
    path.parent.symlink_to(tmp_path / "real")
    for number in range(2):
        write(sinks.numbers(number, number + 1), FileSink(path, mode="append"))
    assert sinks.rows(tmp_path / "real" / "out") == [0, 1]
    assert sinks.left(tmp_path / "real" / "out") == []


def test_others_cannot_write_into_the_folders_of_a_job(path):
    umask = os.umask(0)
    try:
        sinks.begun(path)
        file = sinks.staged(path)
        stream(path).commit(0, [])
    finally:
        os.umask(umask)
    folders = [file.parent, file.parent.parent, path / "_staging", path / "_headgate/commits/q"]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o755] * 4
