"""Two drivers of one checkpoint folder, in all schedules with up to two switches between their steps on the file system."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from headgate.errors import CheckpointError
from headgate.sink import FileSink, WriterContext
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.messages import to_base64
from headgate.stream.job.store import CheckpointStore

#: The methods of a store that take one step on the file system.
STEPS = ("_numbers", "_names", "_create", "_read", "_delete", "_delete_attempt")


class Turns:
    """Lets one of two threads take its next step, as a test says."""

    def __init__(self):
        self.turn, self.ended = threading.Condition(), set()
        self.allowed = {}

    def step(self, name):
        """Wait until this driver may take its next step."""
        with self.turn:
            self.allowed[name] = self.allowed.get(name, 0) - 1
            self.turn.notify_all()
            while self.allowed[name] < 0:
                self.turn.wait()

    def run(self, name, steps):
        """Let a driver take some steps, or all that it has if None; return True if it has ended."""
        with self.turn:
            while name not in self.ended and self.allowed.get(name, 0) >= 0:
                self.turn.wait()
            left = float("inf") if steps is None else steps
            while left > 0 and name not in self.ended:
                left -= 1
                self.allowed[name] += 1
                self.turn.notify_all()
                while name not in self.ended and self.allowed[name] >= 0:
                    self.turn.wait()
            return name in self.ended

    def end(self, name):
        """Note that a driver has ended."""
        with self.turn:
            self.ended.add(name)
            self.turn.notify_all()


class Driver:
    """A driver as the coordinator is one: it claims, restores, and completes checkpoints, each with files of its own."""

    def __init__(self, name, folder, world, turns=None):
        self.name, self.folder, self.world = name, folder, world
        self.store = CheckpointStore(str(folder))
        self.error = None
        if turns is not None:
            for step in STEPS:
                self._between(step, turns)

    def _between(self, step, turns):
        call = getattr(self.store, step)

        def stepping(*args):
            turns.step(self.name)
            return call(*args)

        setattr(self.store, step, stepping)

    def begin(self):
        found = self.store.claim()
        self.history = [] if found is None else list(found.fields["history"])
        self.checkpoint = 0 if found is None else found.checkpoint
        if found is not None:
            self.commit()
        self.attempt = self.store.attempt(1)

    def commit(self):
        self.world.extend(self.history)

    def complete(self):
        self.checkpoint += 1
        self.history.append(f"{self.name}-{self.checkpoint}")
        task = self.store.task_folder(self.attempt, 0, 0, "count")
        file = self.folder / task / f"{self.checkpoint}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        operators = {"count": {"state": [[task, self.checkpoint]]}}
        fields = {"checkpoint": self.checkpoint, "history": self.history, "operators": operators}
        self.store.complete(fields)
        self.commit()
        self.store.delete_old(self.attempt)

    def start(self, work, turns):
        def run():
            try:
                turns.step(self.name)
                work(self)
            except CheckpointError as error:
                self.error = error
            finally:
                turns.end(self.name)

        self.thread = threading.Thread(target=run)
        self.thread.start()


def old(driver):
    driver.complete()


def new(driver):
    driver.begin()
    driver.complete()
    driver.complete()


def schedule(folder, first, before, during):
    """Let one driver take some steps, then the other one, then the first to its end, then the other one.

    Returns the number of steps that the first and the second took before the last switch at most, as far as they had any.
    """
    world, turns = [], Turns()
    one = Driver("old", folder, world)
    one.begin()
    one.complete()
    for step in STEPS:
        one._between(step, turns)
    two = Driver("new", folder, world, turns)
    one.start(old, turns)
    two.start(new, turns)
    names = ["old", "new"] if first == "old" else ["new", "old"]
    is_over = [turns.run(names[0], before), turns.run(names[1], during)]
    for name in names:
        turns.run(name, None)
    for driver in (one, two):
        driver.thread.join()
    check(folder, one, two, world)
    return is_over


def check(folder, one, two, world):
    assert two.error is None, "the newest driver goes on"
    left = Driver("last", folder, world)
    found = left.store.claim()
    history = found.fields["history"]
    assert history[-2:] == two.history[-2:]
    # What was committed by either is behind the checkpoint from which a job continues.
    assert set(world) == set(history)
    assert len(set(history)) == len(history)
    for task, number in found.fields["operators"]["count"]["state"]:
        assert (folder / task / str(number)).exists()
    assert one.error is None or "another driver" in one.error.summary


@pytest.mark.soak
@pytest.mark.parametrize("first", ["old", "new"])
def test_the_newest_of_two_drivers_continues_and_no_checkpoint_is_lost(
    tmp_path, first, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    schedules = 0
    for before in range(200):
        for during in range(200):
            folder = Path(tmp_path / f"{before}-{during}")
            one_over, two_over = schedule(folder, first, before, during)
            schedules += 1
            if two_over:
                break
        if one_over:
            break
    assert schedules > 100


def test_a_driver_whose_entry_was_written_though_it_failed_continues_from_it(tmp_path, monkeypatch):
    driver = Driver("one", tmp_path, [])
    driver.begin()
    create = driver.store._create

    def failing(*args):
        create(*args)
        raise CheckpointError("planned")

    driver.store._create = failing
    with pytest.raises(CheckpointError, match="planned"):
        driver.complete()
    driver.store._create = create
    assert driver.store.latest().checkpoint == 1
    driver.complete()
    assert driver.store.latest().checkpoint == 2


def test_retained_checkpoints_are_counted_without_the_entries_of_claims(tmp_path):
    for _ in range(3):
        driver = Driver("one", tmp_path, [])
        driver.store = CheckpointStore(str(tmp_path), 2)
        driver.begin()
        driver.complete()
        driver.complete()
    kept = [driver.store._read(number) for number in driver.store._numbers("log")]
    assert [one["checkpoint"] for one in kept] == [5, 6]
    attempts = {path.name for path in (tmp_path / "tasks").iterdir()}
    assert attempts == {driver.attempt}


def test_what_a_killed_driver_had_begun_to_write_is_deleted_by_the_next_one(tmp_path):
    driver = Driver("one", tmp_path, [])
    driver.begin()
    driver.complete()
    begun = tmp_path / "log" / "0000000003.json.12345678.partial"
    begun.touch()
    later = tmp_path / "log" / "0000000004.json.12345678.partial"
    later.touch()
    driver = Driver("two", tmp_path, [])
    driver.begin()
    assert not begun.exists()
    # Whose it is, is not known: it may yet become an entry.
    assert later.exists()


def test_a_driver_whose_begun_claim_a_faster_one_deleted_claims_the_next_entry(
    tmp_path, monkeypatch
):
    fast, slow = (Driver(name, tmp_path, []) for name in ("fast", "slow"))
    link = os.link

    def overtaken(source, target, **folders):
        monkeypatch.setattr(os, "link", link)
        fast.begin()
        link(source, target, **folders)

    monkeypatch.setattr(os, "link", overtaken)
    slow.begin()
    slow.complete()
    with pytest.raises(CheckpointError, match="another driver"):
        fast.complete()


class Committing:
    """A sink whose committer calls a function before each step."""

    def __init__(self, sink, before_step):
        self.sink, self.before_step = sink, before_step

    def create_committer(self, context):
        committer = self.sink.create_committer(context)

        def stepping(name):
            call = getattr(committer, name)

            def step(*args, **options):
                self.before_step()
                return call(*args, **options)

            return step

        steps = {name: stepping(name) for name in ("start", "commit", "abort_unknown", "close")}
        return SimpleNamespace(**steps)


def sinks_of(sink):
    commits = SinkCommits(SimpleNamespace(stages=[]), "job")
    commits._sinks["sink"] = sink
    return commits


@pytest.mark.parametrize("step", range(3))
def test_an_older_driver_that_restores_removes_no_rows_that_a_newer_one_has_staged(tmp_path, step):
    folder, sink = str(tmp_path / "checkpoints"), FileSink(tmp_path / "rows", mode="append")
    older, newer = CheckpointStore(folder), CheckpointStore(folder)
    commits = sinks_of(sink)

    def stage(store, n, checkpoint, restored, index=0):
        attempt = f"{store.attempt(1)}-0-{index}"
        context = WriterContext("job.sink", index, 2, attempt, restored)
        with sink.create_writer(context) as writer:
            writer.write(pa.record_batch({"n": [n]}))
            found = writer.prepare_commit(checkpoint)
        committables = [[checkpoint, to_base64(found)]]
        return {"checkpoint": checkpoint, "operators": {"sink": {"committables": committables}}}

    def overtake():
        """Be a newer driver up to the moment before it commits its first checkpoint."""
        found = newer.claim()
        commits.restore(found, newer.attempt(1))
        fields = stage(newer, 2, 2, found.checkpoint)
        newer.complete(fields)
        staged.append(fields)

    assert older.claim() is None
    commits.restore(None, older.attempt(1))
    fields = stage(older, 1, 1, None)
    older.complete(fields)
    stage(older, 99, 2, None, index=1)
    staged, steps = [], []

    def before_step():
        if len(steps) == step:
            overtake()
        steps.append(step)

    found = older.latest()
    sinks_of(Committing(sink, before_step)).restore(found, older.attempt(2))
    assert len(steps) == 3
    commits.commit(2, staged[0])
    assert sorted(ds.dataset(tmp_path / "rows").to_table()["n"].to_pylist()) == [1, 2]
    assert not list((tmp_path / "rows").glob("_staging/*"))
