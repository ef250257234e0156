"""Files of kept exchanges below a folder that other users can write to, such as /tmp."""

import os
from pathlib import Path

import pytest
from tests.driver.test_host import PLAN, leave

from headgate.errors import SpillError
from headgate.spark.tasks import kept_files, kept_lifetime
from headgate.spark.tasks.start_host import ensure, revive

OTHER = 65534


def of_another_user(folder):
    if os.getuid() != 0:
        pytest.skip("only root can make folders of another user")
    os.chown(folder, OTHER, OTHER)


def open_to_others(folder):
    folder.chmod(0o777)


def open_to_the_group(folder):
    folder.chmod(0o775)


def linked(folder):
    real = folder.with_name("real")
    folder.rename(real)
    folder.symlink_to(real)


FOREIGN = [of_another_user, open_to_others, open_to_the_group, linked]


@pytest.fixture
def executors(tmp_path):
    """Two executors of a host, in one directory, as YARN has them."""
    found = [str(tmp_path / f"blockmgr-{name}") for name in "ab"]
    for directory in found:
        Path(directory).mkdir()
    return found


@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_is_not_ours_is_neither_found_nor_swept(executors, foreign):
    own, other = executors
    mine = leave((own,), 1, 10)
    planted = leave((other,), 1, 99)
    foreign(planted.parent)
    assert kept_files.find_indexes("ab12", (own,)) == {1: {10: mine}}
    assert list(kept_files.index_files(kept_files.folders_of([other]))) == []
    assert kept_lifetime._sweep(planted.parent, [other], {99}) is False
    assert planted.exists()


@pytest.mark.parametrize("foreign", FOREIGN)
def test_no_producer_writes_into_a_folder_that_is_not_ours(monkeypatch, executors, foreign):
    folder = kept_files.folders_of(executors)[0]
    folder.mkdir()
    foreign(folder)
    monkeypatch.setattr(kept_files, "local_directories", lambda: tuple(executors[:1]))
    for use in (lambda: kept_files.folder_for(7), lambda: ensure(PLAN, executors)):
        with pytest.raises(SpillError, match="belongs to another user"):
            use()
    (folder / "host.json").touch()
    revive(PLAN, executors)
    assert not (folder / "host.lock").exists()


def test_a_file_that_is_a_link_is_not_found(executors, tmp_path):
    own = leave(executors[:1], 1, 10)
    elsewhere = tmp_path / "elsewhere"
    own.rename(elsewhere)
    own.symlink_to(elsewhere)
    assert kept_files.find_indexes("ab12", tuple(executors)) == {}


def test_our_folders_are_closed_to_others(monkeypatch, executors):
    monkeypatch.setattr(kept_files, "local_directories", lambda: tuple(executors))
    before = os.umask(0)
    try:
        folder = kept_files.folder_for(7)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
