"""Links and files that others left in folders of checkpoints: none is followed, and none is deleted or obeyed."""

import os
import stat
from pathlib import Path

import pytest
from tests.kit import stream_jobs

from headgate import errors
from headgate.sink import FunctionSink
from headgate.stream import JobState

ROWS = 1500
#: Names that older attempts of a driver have, and their state.
OLD = ("0000000001-aaaaaaaa-000001", "0000000000-bbbbbbbb-000002")


def job(rate=ROWS):
    counted = stream_jobs.numbers(ROWS, rate=rate).key_by("key")
    return counted.process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count").sink(
        FunctionSink(stream_jobs.same)
    )


def run(folder, **options):
    query = job().start(checkpoint=str(folder), interval=0.05, name="planted", **options)
    query.await_termination(60)
    return query


def private(tmp_path):
    """Return a folder of somebody else, with files that an old attempt and a log could have."""
    folder = tmp_path / "private"
    for name in OLD:
        (folder / name).mkdir(parents=True)
        (folder / name / "letter.txt").write_text("dear")
    for name in ("0000000001.json", "0000000001.json.0123abcd.partial"):
        (folder / name).write_text("dear")
    return folder


def contents(folder):
    return {str(one): one.is_file() and one.read_bytes() for one in folder.rglob("*")}


@pytest.mark.parametrize("name", ["tasks", "log"])
def test_a_link_in_place_of_a_folder_is_refused_and_not_followed(tmp_path, name):
    checkpoints, target = tmp_path / "checkpoints", private(tmp_path)
    before = contents(target)
    checkpoints.mkdir()
    (checkpoints / name).symlink_to(target)
    with pytest.raises(errors.CheckpointError, match="symbolic link"):
        run(checkpoints, restarts=0)
    assert contents(target) == before


def test_names_that_are_no_entries_and_no_attempts_stay(tmp_path):
    checkpoints, target = tmp_path / "checkpoints", private(tmp_path)
    before = contents(target)
    tasks, log = checkpoints / "tasks", checkpoints / "log"
    for folder in (tasks, log):
        folder.mkdir(parents=True)
    (tasks / OLD[0]).symlink_to(target)
    for name in ("notes", "0000000001-backup", "1-aaaaaaaa-000001", OLD[1] + "~"):
        (tasks / name).mkdir()
        (tasks / name / "kept").touch()
    for name in ("5.json", "00000000005.json", "backup.json", "1.json.0123abcd.partial"):
        (log / name).write_text("dear")
    planted = contents(checkpoints)
    assert run(checkpoints).state is JobState.FINISHED
    left = contents(checkpoints)
    assert {name: left.get(name) for name in planted} == planted
    assert contents(target) == before


def test_old_attempts_are_deleted(tmp_path):
    folder = tmp_path / "checkpoints" / "tasks" / OLD[1]
    folder.mkdir(parents=True)
    (folder / "state").touch()
    run(tmp_path / "checkpoints")
    assert not folder.exists()


@pytest.mark.parametrize("plant", [os.mkdir, lambda path: Path(path).symlink_to("nowhere")])
def test_what_is_no_file_in_place_of_an_entry_is_an_error(tmp_path, plant):
    (tmp_path / "log").mkdir()
    plant(str(tmp_path / "log" / "0000000001.json"))
    with pytest.raises(errors.CheckpointError, match="cannot be claimed") as found:
        run(tmp_path)
    assert "0000000001.json" in found.value.have


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("name", ["log", "tasks", "log/*.json", "tasks/*/*/*.manifest"])
def test_files_of_another_user_are_refused(tmp_path, name):
    query = job().start(checkpoint=str(tmp_path), interval=0.05, name="planted")
    stream_jobs.wait_for_a_checkpoint(query)
    query.stop()
    os.chown(max(tmp_path.glob(name)), 65534, 65534)
    refused = (errors.CheckpointError, errors.SnapshotError)
    with pytest.raises(refused, match="belongs to user 65534"):
        run(tmp_path, restarts=0)


def test_state_is_for_this_user_only(tmp_path):
    before = os.umask(0o022)
    try:
        query = job(rate=300).start(checkpoint=str(tmp_path / "made" / "here"), interval=0.05)
        stream_jobs.wait_for_a_checkpoint(query)
        query.savepoint(str(tmp_path / "savepoint"))
        query.cancel()
    finally:
        os.umask(before)
    roots = [tmp_path / "made" / "here", tmp_path / "savepoint"]
    found = [one for root in roots for one in (root, *root.rglob("*"))]
    assert {one.suffix for one in found} >= {".json", ".arrow", ".manifest"}
    for one in found:
        assert stat.S_IMODE(one.stat().st_mode) == (0o700 if one.is_dir() else 0o600), one
