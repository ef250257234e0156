"""After a crash at any step of a commit, the next use shows all files of the job or none."""

import random
import warnings

import pytest
from tests.kit import sinks

from headgate.errors import HeadgateWarning, SinkError
from headgate.sink import FileSink, write

OLD, NEW = list(range(10)), list(range(100, 110))


@pytest.fixture(autouse=True)
def dead(monkeypatch):
    """Make the owner of this process's jobs look dead."""
    monkeypatch.setattr("headgate.sink.file_committer.Owner.of", sinks.dead_owner)


def old_data(path):
    write(sinks.numbers(0, 10), FileSink(path, max_rows_per_file=5))


def new_job(path, mode, faults, batches=None):
    sink = sinks.faulty(path, faults, mode=mode, max_rows_per_file=3)
    return write(batches or sinks.numbers(100, 110), sink)


def steps(tmp_path, mode):
    """Return the steps of a job with a mode."""
    faults = sinks.Faults()
    if mode != "error":
        old_data(tmp_path / "counted")
    new_job(tmp_path / "counted", mode, faults)
    assert len(faults.seen) > 30
    return faults.seen


def whole(mode):
    return {"error": NEW, "append": OLD + NEW, "overwrite": NEW}[mode]


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_crash_at_every_step(tmp_path, mode):
    seen = steps(tmp_path, mode)
    ends = set()
    for number in range(1, len(seen) + 1):
        path = tmp_path / f"crash-{number}"
        before = [] if mode == "error" else OLD
        if before:
            old_data(path)
        with pytest.raises(sinks.Crash):
            new_job(path, mode, sinks.Faults(number))
        decided = bool(list(path.glob("_staging/*/_commit.json")))
        FileSink(path).recover()
        found = sinks.rows(path)
        complete = (path / "_SUCCESS").exists() and found == whole(mode)
        assert complete or found == before, seen[number - 1]
        assert complete or not decided, seen[number - 1]
        assert sinks.left(path) == [], seen[number - 1]
        begun = any(step.endswith("_job.json") for step in seen[: number - 1])
        assert path.exists() == bool(found) or not begun, "the folders that the job made"
        assert path.parent.exists()
        ends.add(complete)
    assert ends == {True, False}


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_an_error_at_every_step(tmp_path, mode):
    seen = steps(tmp_path, mode)
    ends = set()
    for number in range(1, len(seen) + 1):
        path = tmp_path / f"error-{number}"
        before = [] if mode == "error" else OLD
        if before:
            old_data(path)
        end = "written"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", HeadgateWarning)
            try:
                new_job(path, mode, sinks.Faults(number, sinks.disk_full()))
            except SinkError as error:
                said = str(error)
                end = "decided" if "the commit is decided" in said else "nothing"
        where = f"{end} after {seen[number - 1]}"
        if end != "written":
            wanted = [str(path), "no space left", "free space"]
            wanted += ["then FileSink(path).recover()"] if end == "decided" else []
            assert all(text in said for text in wanted), where
        if end == "nothing":
            assert sinks.rows(path) == before, where
            assert sinks.left(path) == [], where
        assert not told or end == "written", where
        FileSink(path).recover()
        assert sinks.rows(path) == (before if end == "nothing" else whole(mode)), where
        assert sinks.left(path) == [], where
        ends.add(end)
    assert ends == {"written", "decided", "nothing"}


def test_a_crash_at_every_step_of_an_abort(tmp_path):
    def failing_batches():
        yield from sinks.numbers(0, 10)
        raise ValueError("enough")

    faults = sinks.Faults()
    with pytest.raises(ValueError, match="enough"):
        new_job(tmp_path / "counted", "error", faults, failing_batches())
    assert not (tmp_path / "counted").exists()
    gone = 0
    for number in range(1, len(faults.seen) + 1):
        path = tmp_path / f"abort-{number}"
        with pytest.raises(sinks.Crash):
            new_job(path, "error", sinks.Faults(number), failing_batches())
        FileSink(path).recover()
        # The folders stay, empty, if _job.json is not written yet or removed already.
        assert list(path.rglob("*")) == [], faults.seen[number - 1]
        gone += not path.exists()
    assert gone > len(faults.seen) // 2


def test_a_crash_at_every_step_of_the_recovery(tmp_path):
    def decided(path):
        old_data(path)
        faults = sinks.Faults()
        faults.step = crash_at_move
        with pytest.raises(sinks.Crash):
            new_job(path, "overwrite", faults)
        assert list(path.glob("_staging/*/_commit.json"))

    def crash_at_move(name, path):
        if name == "move" and "/part-" in path and "00001" in path:
            raise sinks.Crash

    decided(tmp_path / "counted")
    faults = sinks.Faults()
    sinks.faulty(tmp_path / "counted", faults).recover()
    for number in range(1, len(faults.seen) + 1):
        path = tmp_path / f"recovery-{number}"
        decided(path)
        with pytest.raises(sinks.Crash):
            sinks.faulty(path, sinks.Faults(number)).recover()
        FileSink(path).recover()
        assert sinks.rows(path) == NEW
        assert sinks.left(path) == []


def _write_for_ever(path, start, pipe):
    for job in range(start, start + 10_000):
        batches = sinks.numbers(job * 10, job * 10 + 10, chunk=2)
        pipe.send(("started", job))
        write(batches, FileSink(path, mode="append", max_rows_per_file=3))
        pipe.send(("written", job))


@pytest.mark.soak
def test_killed_fifty_times(path):
    chance = random.Random(6)
    written, job = set(), 0
    for _ in range(50):
        ours, theirs = sinks.processes.Pipe()
        child = sinks.processes.Process(target=_write_for_ever, args=(path, job, theirs))
        child.start()
        theirs.close()
        assert ours.recv() == ("started", job)
        ours.poll(chance.uniform(0.001, 0.03))
        for _ in range(chance.randrange(3)):
            ours.poll(chance.uniform(0.0, 0.01))
        child.kill()
        child.join()
        while True:
            try:
                kind, job = ours.recv()
            except EOFError:
                break
            if kind == "written":
                written.add(job)
        ours.close()
        FileSink(path, mode="append").recover()
        assert sinks.left(path) == []
        found = sinks.rows(path)
        jobs = {number // 10 for number in found}
        assert found == sorted(n for j in jobs for n in range(j * 10, j * 10 + 10))
        # The commit of the last job may have been decided when it was killed.
        assert written <= jobs <= written | {job}
        written = jobs
        job += 1
    assert len(written) > 5
