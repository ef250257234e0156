"""A sink neither obeys nor removes files of other users."""

import os

import pytest
from tests.kit import sinks
from tests.kit.planting import ACTIONS, JOB, QUERY, actions, move, plant, refused, stream

from headgate.errors import HeadgateWarning, SinkError
from headgate.sink import FileSink, Recovered, write

SAID = f"belongs to user {sinks.STRANGER}"


@pytest.fixture(params=["chown", "stat"])
def give_away(request, monkeypatch):
    """Return a function that gives a file to another user."""
    if request.param == "chown" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    return sinks.strangers(request.param, monkeypatch)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_staging_folder_of_another_user_is_refused(tmp_path, path, give_away, action):
    plant(path, **move())
    give_away(path / "_staging")
    before = sinks.snapshot(tmp_path)
    said = refused(path, action, SAID)
    assert f"runs as {os.geteuid()}" in said
    assert "FileSink(path).recover() by that user" in said
    assert sinks.snapshot(tmp_path) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_a_job_of_another_user_stays_with_a_warning(path, give_away, action):
    plant(path, **move())
    folder = path / "_staging" / JOB
    give_away(folder)
    before = sinks.snapshot(folder)
    with pytest.warns(HeadgateWarning, match=f"another user's job are left: .*{SAID}") as told:
        actions(path)[action]()
    assert told[0].message.code == "HG-6004"
    assert sinks.snapshot(folder) == before
    assert sinks.rows(path) == ([] if action in {"recover", "stream"} else [0, 1, 2])


def test_an_earlier_batch_of_another_user_stays_and_stops_no_later_one(path, give_away):
    plant(path, name=f"{QUERY}-0", job=f"{QUERY}-0")
    folder = path / "_staging" / f"{QUERY}-0"
    give_away(folder)
    before = sinks.snapshot(folder)
    committer = stream(path)
    with pytest.warns(HeadgateWarning, match=f"another user's job are left: .*{SAID}"):
        committer.commit(1, [])
    assert committer.latest() == 1
    assert sinks.snapshot(folder) == before


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", ["_commit.json", "_job.json"])
def test_a_file_of_a_job_that_belongs_to_another_user(tmp_path, path, give_away, action, name):
    plant(path, **move())
    (path / "_staging" / JOB / "_job.json").write_text("{}")
    give_away(path / "_staging" / JOB / name)
    before = sinks.snapshot(tmp_path)
    refused(path, action, SAID)
    assert sinks.snapshot(tmp_path) == before


@pytest.mark.parametrize("what", ["file", "attempt"])
def test_a_staged_file_of_another_user_is_not_committed(tmp_path, path, give_away, what):
    committer, found = sinks.begun(path)
    file = sinks.staged(path)
    give_away(file if what == "file" else file.parent)
    before = sinks.snapshot(tmp_path)
    with pytest.raises(SinkError, match=SAID) as caught:
        committer.commit(0, [found])
    assert "the commit is decided" not in str(caught.value)
    assert sinks.snapshot(tmp_path) == before


@pytest.mark.parametrize("what", ["file", "attempt"])
def test_a_staged_file_of_another_user_is_not_recovered(path, give_away, what):
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    given = file if what == "file" else file.parent
    give_away(given)
    for action in ("recover", "append"):
        assert "the commit is decided" in refused(path, action, SAID)
    assert file.exists()
    assert list(path.glob("part-*")) == []


@pytest.mark.parametrize("what", ["file", "attempt"])
def test_a_file_of_another_user_in_a_dead_job_is_not_removed(path, give_away, what):
    sinks.begun(path, sinks.dead_owner())
    file = sinks.staged(path)
    give_away(file if what == "file" else file.parent)
    before = sinks.snapshot(path)
    with pytest.warns(HeadgateWarning, match=f"a dead job are left: .*{SAID}"):
        assert FileSink(path).recover() == Recovered()
    assert sinks.snapshot(path) == before


@pytest.mark.parametrize("name", ["_headgate", "_headgate/commits/q", "_headgate/commits/q/99"])
def test_markers_of_another_user_hide_no_batch(tmp_path, path, give_away, name):
    marker = path / "_headgate/commits" / QUERY / "99"
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    give_away(path / name)
    before = sinks.snapshot(tmp_path)
    refused(path, "stream", SAID)
    with pytest.raises(SinkError, match=SAID):
        stream(path).latest()
    assert sinks.snapshot(tmp_path) == before


def test_a_file_of_another_user_is_not_replaced(path, give_away):
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    target = path / f"part-{file.parent.parent.name}-00000-{file.name.rpartition('-')[2]}"
    target.write_text("another user's")
    give_away(target)
    assert "the commit is decided" in refused(path, "recover", SAID)
    assert target.read_text() == "another user's"
    target.unlink()
    assert FileSink(path).recover().completed
    assert sinks.rows(path) == [0, 1, 2]


def test_the_success_file_of_another_user_is_replaced(path, give_away):
    """It marks the state of the folder, to which both users write."""
    write(sinks.numbers(0, 3), FileSink(path))
    give_away(path / "_SUCCESS")
    write(sinks.numbers(3, 6), FileSink(path, mode="append"))
    assert (path / "_SUCCESS").stat().st_uid == os.geteuid()
    assert sinks.rows(path) == list(range(6))


def test_a_file_system_may_show_another_owner_for_all_files(path, monkeypatch):
    """As network mounts do that map users: the owner of a new file counts."""
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    sinks.decided(path, sinks.dead_owner())
    assert FileSink(path).recover().completed
    write(sinks.numbers(3, 6), FileSink(path, mode="append"))
    assert sinks.rows(path) == list(range(6))
    assert sinks.left(path) == []
    assert not list(path.glob(".*"))
