"""Storages that fail or crash at a chosen step, processes to kill, and checks of the files left."""

import dataclasses
import errno
import multiprocessing
import os
import secrets
import stat
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest

from headgate.sink import CommitterContext, FileSink, batch
from headgate.sink.layout import folder_name, is_hidden
from headgate.sink.local_storage import LocalStorage
from headgate.sink.owner import Owner

#: The methods of a storage; each call is a step.
STEPS = (
    *("info", "list", "open_output", "make_folder", "sync", "move", "move_new"),
    *("delete_file", "delete_tree", "remove_empty", "read"),
)


class Crash(BaseException):
    """A simulated crash: every later step raises it too."""


class Faults:
    """Counts steps, and crashes or fails before a chosen one.

    Args:
        at: the number of the step, from 1; None for no fault.
        error: raised once at the step; None to crash.
    """

    def __init__(self, at=None, error=None):
        self.at = at
        self.error = error
        self.seen = []
        self.is_dead = False

    def step(self, name, path):
        if self.is_dead:
            raise Crash
        self.seen.append(f"{name} {path}")
        if len(self.seen) == self.at:
            if self.error is not None:
                raise self.error
            self.is_dead = True
            raise Crash


class FaultyStorage(LocalStorage):
    """A storage whose steps are counted."""

    def __init__(self, storage, faults):
        super().__init__(storage.root)
        self.faults = faults


def _counted(name):
    real = getattr(LocalStorage, name)

    def call(self, path, *args, **kwargs):
        try:
            self.faults.step(name, path)
        except OSError:
            if name == "remove_empty":
                return False  # It never fails.
            raise
        return real(self, path, *args, **kwargs)

    return call


for _name in STEPS:
    setattr(FaultyStorage, _name, _counted(_name))


class FaultySink(FileSink):
    """A sink on a FaultyStorage; the caller sets ``faults``."""

    faults = None

    def storage(self):
        return FaultyStorage(super().storage(), self.faults)


def faulty(path, faults, **options):
    sink = FaultySink(path, **options)
    object.__setattr__(sink, "faults", faults)
    return sink


def disk_full():
    return OSError(errno.ENOSPC, "no space left on device")


_HERE = Owner.of(os.getpid())


def dead_owner(pid=None):
    """Return the identity of a process that is gone, in place of Owner.of."""
    return dataclasses.replace(_HERE, started=0)


def numbers(start, stop, chunk=4):
    """Return batches with a column n."""
    array = pa.array(range(start, stop), pa.int64())
    return pa.table({"n": array}).to_batches(chunk)


def rows(path):
    """Return the column n of all visible files, sorted."""
    files = [f for f in Path(path).rglob("*") if f.is_file() and not is_hidden(below(f, path))]
    found = []
    for kind in ("parquet", "arrow"):
        some = [str(file) for file in files if file.suffix == f".{kind}"]
        table = pa.dataset.dataset(some, format=kind).to_table() if some else {"n": pa.array([])}
        found += table["n"].to_pylist()
    assert all(file.suffix in {".parquet", ".arrow"} for file in files)
    return sorted(found)


def left(path):
    """Return the hidden files below a path that are not markers, relative to it."""
    found = [below(file, path) for file in Path(path).rglob("*")]
    kept = ("_SUCCESS", "_headgate")
    ours = (name for name in found if is_hidden(name))
    return sorted(name for name in ours if not name.startswith(kept) or name.endswith(".partial"))


def below(file, path):
    return file.relative_to(path).as_posix()


def new_batch(name=None):
    return CommitterContext(name or secrets.token_hex(8), is_batch=True)


def stage(sink, job, batches, index=0):
    """Run a task of a batch; return its committable."""
    return batch.stage(sink, batch.writer_context(job, index), batches).committable


def folder(committer):
    """Return the name of the folder in which a batch stages its files."""
    return folder_name(committer._job, 0)


def begun(path, owner=None, **options):
    """Start a batch and stage a file; return its committer and committable."""
    sink = FileSink(path, mode="append", **options)
    job = new_batch()
    committer = sink.create_committer(job, owner=owner)
    committer.start(None)
    return committer, stage(sink, job.job, numbers(0, 3))


def decided(path, owner=None, **options):
    """Start a job that dies at its first rename; return its committer."""
    committer, staged = begun(path, owner, **options)
    storage = committer._storage
    faults = Faults()
    committer._storage = FaultyStorage(storage, faults)
    faults.step = crash_at_rename
    with pytest.raises(Crash):
        committer.commit(0, [staged])
    committer._storage = storage
    return committer


def crash_at_rename(name, path):
    if name == "move" and path.endswith(".parquet"):
        raise Crash


def staged(path):
    """Return the only staged file."""
    (file,) = path.glob("_staging/*/*/part-*")
    return file


#: Children are forked from a server that has imported all modules they need.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["headgate.sink", "pyarrow.parquet", "pyarrow.dataset", "pytest"])


def snapshot(folder):
    """Return the names below a folder with their kinds, inodes, owners and contents."""
    found = {}
    for file in sorted(Path(folder).rglob("*")):
        facts = file.lstat()
        is_plain = stat.S_ISREG(facts.st_mode)
        text = file.read_bytes() if is_plain else file.readlink() if file.is_symlink() else ""
        found[below(file, folder)] = (facts.st_mode, facts.st_ino, facts.st_uid, text)
    return found


#: A user that no test runs as.
STRANGER = 54_321


def strangers(how, monkeypatch):
    """Return a function that gives a file to another user: by chown, or in os.stat's results."""
    if how == "chown":
        return lambda file: os.chown(file, STRANGER, -1, follow_symlinks=False)
    given = set()

    def disguised(call):
        def facts(*args, **kwargs):
            found = call(*args, **kwargs)
            if found.st_ino not in given:
                return found
            fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
            return types.SimpleNamespace(**{**fields, "st_uid": STRANGER})

        return facts

    for name in ("stat", "fstat", "lstat"):
        monkeypatch.setattr(os, name, disguised(getattr(os, name)))
    return lambda file: given.add(Path(file).lstat().st_ino)
