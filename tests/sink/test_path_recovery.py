"""Recovery of a path: staged files that it removes or keeps, and commits that it completes."""

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest
from pyarrow import fs
from tests.kit import sinks

from headgate.errors import HeadgateWarning, SinkError
from headgate.sink import FileSink, Recovered, write
from headgate.sink.owner import Owner
from headgate.sink.storage import Storage


def elsewhere():
    return dataclasses.replace(Owner.of(os.getpid()), host="another-machine")


def make_old(path, seconds):
    for file in (path, *path.rglob("*")):
        os.utime(file, (time.time() - seconds,) * 2)


def test_owners():
    here = Owner.of(os.getpid())
    assert here.is_alive is True
    assert sinks.dead_owner().is_alive is False
    assert elsewhere().is_alive is None
    assert Owner.of(2**22 + 1) is None
    child = sinks.processes.Process(target=time.sleep, args=(60,))
    child.start()
    owner = Owner.of(child.pid)
    assert owner.is_alive is True
    os.kill(child.pid, 9)
    child.join()
    assert owner.is_alive is False
    parent = Owner.of_ancestor(Path(f"/proc/{os.getppid()}/comm").read_text().strip())
    assert parent.pid == os.getppid()
    assert Owner.of_ancestor("no such program") is None


def test_a_living_job_is_left_alone(path):
    committer, staged = sinks.begun(path, stale_after=0)
    assert FileSink(path, stale_after=0).recover() == Recovered()
    write(sinks.numbers(10, 13), FileSink(path, mode="overwrite", stale_after=0))
    assert committer.commit(0, [staged]).rows == 3
    assert sinks.rows(path) == [0, 1, 2, 10, 11, 12]
    assert sinks.left(path) == []


def test_a_dead_job_is_removed(path):
    committer, _ = sinks.begun(path, sinks.dead_owner())
    assert FileSink(path).recover() == Recovered((), (sinks.folder(committer),))
    assert not path.exists()


def test_a_job_that_cannot_be_seen_is_removed_when_it_is_old(path):
    committer, _ = sinks.begun(path, elsewhere())
    assert FileSink(path).recover() == Recovered()
    make_old(path, 3600)
    assert FileSink(path, stale_after="2h").recover() == Recovered()
    (staged,) = path.rglob("part-*")
    os.utime(staged)
    assert FileSink(path, stale_after="30min").recover() == Recovered(), "one file has changed"
    make_old(path, 3600)
    assert FileSink(path, stale_after="30min").recover() == Recovered(
        (), (sinks.folder(committer),)
    )
    assert not path.exists()


def test_a_decided_job_is_completed(path):
    committer = sinks.decided(path, sinks.dead_owner())
    assert sinks.rows(path) == []
    assert FileSink(path).recover() == Recovered((sinks.folder(committer),), ())
    assert sinks.rows(path) == [0, 1, 2]
    assert (path / "_SUCCESS").exists()
    assert sinks.left(path) == []


def test_a_decided_job_is_not_aborted(path):
    committer = sinks.decided(path)
    committer.abort_unknown([])
    assert FileSink(path).recover() == Recovered(), "its process lives"
    assert committer.commit(0, []).rows == 3
    assert sinks.rows(path) == [0, 1, 2]


def test_an_overwrite_completes_what_others_have_decided_first(path):
    sinks.decided(path)
    result = write(sinks.numbers(10, 13), FileSink(path, mode="overwrite"))
    assert sinks.rows(path) == [10, 11, 12]
    assert {file.name for file in path.glob("part-*")} == set(result.files)
    assert sinks.left(path) == []


def test_every_mode_completes_dead_jobs_first(path):
    sinks.decided(path, sinks.dead_owner())
    with pytest.raises(SinkError, match="holds data already"):
        write(sinks.numbers(10, 13), FileSink(path))
    assert sinks.rows(path) == [0, 1, 2]


def test_a_file_that_is_gone_is_named(path):
    sinks.decided(path, sinks.dead_owner())
    (staged,) = path.glob("_staging/*/*/part-*")
    staged.unlink()
    with pytest.raises(SinkError, match="neither") as caught:
        FileSink(path).recover()
    assert staged.name in str(caught.value)
    assert caught.value.details["path"].startswith(str(path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}', '{"version": 1, "moves": 3}'])
def test_a_strange_journal_is_named(path, text):
    sinks.decided(path, sinks.dead_owner())
    (journal,) = path.glob("_staging/*/_commit.json")
    journal.write_text(text)
    with pytest.raises(SinkError, match=r"the journal .*_commit\.json"):
        FileSink(path).recover()


def test_a_strange_owner_counts_as_unknown(path):
    sinks.begun(path, sinks.dead_owner())
    (facts,) = path.glob("_staging/*/_job.json")
    for text in ("", "{", "[]", json.dumps({"owner": {"pid": 1}})):
        facts.write_text(text)
        assert FileSink(path).recover() == Recovered()
    assert FileSink(path, stale_after=0).recover().removed


def test_what_cannot_be_removed_is_a_warning(path, monkeypatch):
    sinks.begun(path, sinks.dead_owner())

    def refuse(self, path):
        raise PermissionError(13, "not yours", path)

    monkeypatch.setattr("headgate.sink.local_storage.LocalStorage.delete_tree", refuse)
    with pytest.warns(HeadgateWarning, match="the staged files of a dead job are left") as told:
        assert FileSink(path).recover() == Recovered()
    assert told[0].message.code == "HG-6004"
    monkeypatch.undo()
    assert FileSink(path).recover().removed


def test_folders_that_hold_nothing_are_removed_at_once(path):
    (path / "_staging" / "unborn").mkdir(parents=True)
    (path / "_staging" / "unborn" / "12ab.partial").write_text("half")
    FileSink(path).recover()
    assert sinks.left(path) == []


def test_foreign_names_in_the_staging_folder_stay(path):
    (path / "_staging" / ".hidden").mkdir(parents=True)
    write(sinks.numbers(0, 3), FileSink(path, stale_after=0))
    assert sinks.left(path) == ["_staging", "_staging/.hidden"]


def test_a_folder_that_comes_and_goes_is_listed():
    """pyarrow raises if another process removes a folder during the listing and makes it again."""
    memory = fs._MockFileSystem()
    memory.create_dir("out/inside")
    storage = Storage(memory, "out")
    real, said = storage.filesystem, [FileNotFoundError(2, "no such folder")] * 3

    class Flickering:
        def get_file_info(self, selector):
            if said:
                raise said.pop()
            return real.get_file_info(selector)

    storage.filesystem = Flickering()
    assert [entry.path for entry in storage.list("out")] == ["out/inside"]
    said.extend([FileNotFoundError(2, "no such folder")] * 100)
    with pytest.raises(FileNotFoundError):
        storage.list("out")


def _append(path, number, jobs):
    for job in range(jobs):
        start = (number * jobs + job) * 10
        write(sinks.numbers(start, start + 10), FileSink(path, mode="append", max_rows_per_file=4))


def test_jobs_append_at_the_same_time(path):
    children = [sinks.processes.Process(target=_append, args=(path, n, 12)) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0, 0]
    assert sinks.rows(path) == list(range(480))
    assert sinks.left(path) == []
