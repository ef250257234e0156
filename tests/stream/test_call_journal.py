"""The journal of results between checkpoints: what tasks that are lost have paid for is not paid again."""

import random
import threading
from collections import Counter

import pyarrow as pa
import pytest
from tests.stream.test_call_memo import RESULT, MemoTasks, rows_stream

from headgate.stream import SnapshotFolder
from headgate.stream.operators.calls.journal import CallJournal


class Counting:
    """A function that counts its calls by text, and fails at first for some."""

    def __init__(self):
        self.calls, self.paid, self.open = Counter(), Counter(), threading.Event()
        self.open.set()

    def __call__(self, row):
        self.open.wait(30)
        self.calls[row["text"]] += 1
        if int(row["text"][5:]) % 4 == 1 and self.calls[row["text"]] == 1:
            raise ValueError("refused")
        self.paid[row["text"]] += 1
        return [{"answer": row["text"]}] * (int(row["text"][5:]) % 3)


class JournalTasks(MemoTasks):
    """Tasks with folders of attempts, which are lost without a snapshot."""

    def __init__(self, called, folder, clock=lambda: 0):
        self.folder, self.attempt, self.latest, self.restored = folder, 0, [], None
        super().__init__(called, clock=clock)

    def _place(self, at):
        folder = f"{self.folder}/tasks/{self.attempt:010d}/0-{at}-uid"
        return {"folder": folder, "restored_checkpoint": self.restored}

    def open(self, parallelism, snapshots=(), watermark=None):
        self._more = self._place
        self.attempt += 1
        super().open(parallelism, snapshots, watermark)

    def take_checkpoint(self):
        """Take a checkpoint, and go on."""
        self._checkpoint += 1
        self.latest = []
        for at, task in enumerate(self.tasks):
            snapshot = task.snapshot(self._checkpoint, savepoint=False)
            folder = SnapshotFolder(self._place(at)["folder"])
            snapshot.state.write(folder)
            self.latest.append((folder, self._checkpoint, task._context.key_groups))
        self.restored = self._checkpoint

    def complete(self):
        for task in self.tasks:
            task.complete(self._checkpoint)

    def lose(self, parallelism):
        """Continue from the last checkpoint, as after a kill."""
        self.open(parallelism, self.latest)


@pytest.mark.parametrize("seed", range(6))
def test_what_was_paid_for_is_not_paid_again(tmp_path, seed):
    draw, service = random.Random(seed), Counting()
    called = rows_stream().map_async(
        service, schema=RESULT, memo="text", ordered=draw.choice([True, False]), on_error="null"
    )
    tasks = JournalTasks(called, tmp_path)
    rows, position, results = [], 0, []
    for action in draw.choices(
        ["rows", "checkpoint", "abort", "lose", "finish"], [6, 2, 1, 2, 4], k=40
    ):
        if action == "rows":
            new = [(len(rows) + at, 0, f"text {draw.randrange(60)}") for at in range(8)]
            rows += new
            tasks.send(*new)
        elif action == "checkpoint":
            tasks.take_checkpoint()
            tasks.complete()
            position = len(rows)
            results += tasks.take()
        elif action == "abort":
            for task in tasks.tasks:
                tasks._checkpoint += 1
                task.snapshot(tasks._checkpoint, savepoint=False)
                task.abort(tasks._checkpoint)
        elif action == "finish":
            tasks.finish()
        else:
            tasks.finish()
            tasks.take()  # as uncommitted output is
            tasks.lose(draw.randint(1, 4))
            tasks.send(*rows[position:])
    tasks.finish()
    results += tasks.take()
    tasks.close()
    assert set(service.paid.values()) == {1}, "each text once, whatever was lost"
    answers = Counter(row["answer"] for row in results if row["answer"] is not None)
    per_text = Counter(text for _, _, text in rows)
    for text, number in per_text.items():
        refused = service.calls[text] - service.paid[text]
        several = int(text[5:]) % 3
        # The row of an error may have come again, without one.
        assert answers[text] in {several * number, several * (number - refused)}


def test_a_call_in_a_checkpoint_that_has_ended_behind_it_is_not_made_again(tmp_path):
    service = Counting()
    tasks = JournalTasks(rows_stream().map_async(service, schema=RESULT, memo="text"), tmp_path)
    service.open.clear()
    tasks.send((0, 0, "text 4"), (1, 0, "text 4"), (2, 0, "text 7"))
    tasks.take_checkpoint()
    service.open.set()
    tasks.finish()
    tasks.take()
    tasks.lose(3)
    assert tasks.count("calls_recovered") == 2
    tasks.finish()
    assert [row["answer"] for row in tasks.take()].count("text 4") == 2
    assert set(service.paid.values()) == {1}
    tasks.close()


def test_results_are_recovered_for_their_time_only(tmp_path):
    service, clock = Counting(), [0]
    called = rows_stream().map_async(service, schema=RESULT, memo="text", memo_ttl="1 second")
    tasks = JournalTasks(called, tmp_path, clock=lambda: clock[0])
    for moment, text in ((0, "text 4"), (500, "text 7")):
        clock[0] = moment
        tasks.send((0, 0, text))
        tasks.finish()
    clock[0] = 1200
    tasks.lose(1)
    assert tasks.count("calls_recovered") == 1
    tasks.close()


def test_a_recovered_result_lives_from_its_call_on(tmp_path):
    service, clock = Counting(), [0]
    called = rows_stream().map_async(service, schema=RESULT, memo="text", memo_ttl="1 second")
    tasks = JournalTasks(called, tmp_path, clock=lambda: clock[0])
    # Called at 0, and again at 1100, when that is too old; the journal has both at 1900.
    for moment, is_lost, paid in (
        (0, False, 1),
        (900, True, 1),
        (999, False, 1),
        (1100, False, 2),
        (1900, True, 2),
        (2099, False, 2),
        (2150, False, 3),
    ):
        clock[0] = moment
        if is_lost:
            tasks.lose(1)
        tasks.send((0, 0, "text 4"))
        tasks.finish()
        assert service.paid["text 4"] == paid, moment
    tasks.close()


def test_a_record_that_is_not_whole_is_not_read(tmp_path):
    rows = pa.record_batch({"digest": [b"a", b"b"]})
    folder = SnapshotFolder(f"{tmp_path}/tasks/0000000001-x/0-0-calls")
    journal = CallJournal(folder, 3)
    for _ in range(3):
        journal.append(rows)
    journal.close()
    (file,) = tmp_path.glob("tasks/*/*/*.journal")
    assert file.name == "0000000003-calls.journal"
    content = file.read_bytes()

    def count(checkpoint, task="0-5-calls"):
        other = SnapshotFolder(f"{tmp_path}/tasks/0000000001-y/{task}")
        return len([*CallJournal(other, checkpoint).read()])

    assert (count(3), count(4), count(0, "1-0-other")) == (3, 0, 0)
    for cut in (1, len(content) // 2, len(content) - 5):
        file.write_bytes(content[:-cut])
        assert count(3) == 2 if cut < len(content) // 3 else count(3) < 2
    file.write_bytes(content[:-1] + b"\xff")
    assert count(3) == 2
    journal = CallJournal(folder, 3)
    journal.begin(4)
    journal.append(rows)
    journal.complete(4)
    assert [path.name for path in tmp_path.glob("tasks/*/*/*")] == ["0000000004-calls.journal"]
    journal.close()


def test_a_journal_that_cannot_be_written_is_left_out(tmp_path, caplog):
    (tmp_path / "tasks").write_text("no folder")
    journal = CallJournal(SnapshotFolder(f"{tmp_path}/tasks/0000000001-x/0-0-calls"), 0)
    rows = pa.record_batch({"digest": [b"a"]})
    journal.append(rows)
    journal.append(rows)
    assert caplog.text.count("in no journal") == 1
    journal.close()


class Full:
    """A file on a disk that is full."""

    def write(self, content):
        raise OSError("no space left")

    def close(self):
        raise OSError("no space left")


def test_a_full_disk_fails_no_task_and_the_next_checkpoint_has_a_journal_again(tmp_path, caplog):
    journal = CallJournal(SnapshotFolder(f"{tmp_path}/tasks/0000000001-x/0-0-calls"), 0)
    rows = pa.record_batch({"digest": [b"a"]})
    journal._file = Full()
    journal.append(rows)
    journal.append(rows)
    journal.begin(1)
    journal.append(rows)
    journal.close()
    assert caplog.text.count("no space left") == 2
    assert [path.name for path in tmp_path.glob("tasks/*/*/*")] == ["0000000001-calls.journal"]
