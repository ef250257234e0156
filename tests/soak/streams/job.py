"""Runs one job with faults that a seed decides, and checks what became of it."""

import random
import signal
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from tests.soak.streams import at_least_once, oracle
from tests.soak.streams.kinds import (
    ALIGNMENTS,
    ARMED,
    ARMED_ON_SPARK,
    COUNTED_ONLY,
    FUNCTIONS,
    KINDS,
    KINDS_ON_SPARK,
    KINDS_WITHOUT_RESTART,
    MIXED,
    OF_DRIVER,
    OF_WORKERS,
)
from tests.soak.streams.process import LIMIT, Driver, Hang, send


@dataclass
class Outcome:
    """The end of a job.

    Attributes:
        seed: of the job.
        faults: number of each kind that happened.
        missed: faults whose moment never came.
        error: why the job is wrong; empty if it is right.
        seconds: of the job.
        counts: figures of the table.
        name: what the job does, if there are several such jobs.
    """

    seed: int
    faults: Counter = field(default_factory=Counter)
    missed: int = 0
    error: str = ""
    seconds: float = 0.0
    counts: Counter = field(default_factory=Counter)
    name: str = ""


class Job:
    """One job, its drivers one after the other, and the faults.

    Args:
        seed: decides all but the timing. Of four in a row, the second is that of a job with drivers that count
            barriers only, and in half of those nothing makes the tasks start anew.
        folder: of the job; on a small file system of its own if the disk is to be full.
        faults: number of faults.
        has_disk: True if the folder is the root of a file system that may be filled.
        on_spark: True if the tasks of the job are tasks of Spark.
    """

    #: The module with the job, and the points in its functions.
    module = "tests.soak.streams.pipeline"
    functions = FUNCTIONS

    def __init__(self, seed, folder, faults, has_disk, *, on_spark=False):
        self.dice = random.Random(seed)
        self.outcome = Outcome(seed)
        self._folder = folder
        self._faults = faults
        self._has_disk = has_disk
        self._on_spark = on_spark
        self._kinds = KINDS_ON_SPARK if on_spark else KINDS
        self._alignments = MIXED if seed % 4 == 2 else ALIGNMENTS
        if seed % 8 == 6 and not on_spark:
            self._kinds, self._alignments = KINDS_WITHOUT_RESTART, COUNTED_ONLY
        self._counts_only = False
        self._points = folder / "points"
        self._log = folder.parent / f"{folder.name}.log"
        self._savepoints = 0
        #: The savepoint from which the job goes on, and the folder of its checkpoints since then.
        self._savepoint_of = None
        self._checkpoints = folder / "checkpoints"
        self._rows = self.dice.randrange(200, 500) * faults
        self._retained = self.dice.choice([1, 1, 2])
        self._pause = self.dice.choice([0.0, 0.001, 0.003])
        self._driver = None

    def run(self):
        """Run the job; return what became of it."""
        started = time.monotonic()
        self._folder.mkdir(exist_ok=True)
        self._points.mkdir()
        try:
            self._open(0.0)
            self._begin()
            for number in range(self._faults):
                self._open((number + 1) / (self._faults + 1))
                time.sleep(self.dice.uniform(0, 0.12))
                self._strike()
                if self.dice.random() < 0.7:
                    self._recover()
            self._open(1.0)
            self._finish()
            self._check()
        except Exception as error:  # noqa: BLE001 - kept in the outcome
            self.outcome.error = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        finally:
            if self._driver is not None:
                self._driver.end()
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def _note(self, what):
        """Write what happens into the log of the drivers."""
        with self._log.open("a") as file:
            file.write(f"---- {time.time() % 1000:.3f} {what}\n")

    # Drivers.

    def _spec(self):
        dice = self.dice
        workers = dice.choice([2, 3] if self._on_spark else [0, 0, 0, 2, 3])
        alignment = dice.choice(self._alignments)
        self._counts_only |= alignment.get("alignment") == "at_least_once"
        return {
            "module": self.module,
            "root": str(self._folder),
            "checkpoint": str(self._checkpoints),
            "savepoint": self._savepoint_of,
            "on_spark": self._on_spark,
            "rows": self._rows,
            "seed": self.outcome.seed,
            "pause": self._pause,
            "link": dice.choice(["auto", "off"]),
            "options": {
                "parallelism": dice.choice([1, 2, 3]),
                "workers": workers,
                "interval": dice.choice([0.02, 0.03, 0.05]),
                **alignment,
                "tolerable_failures": dice.choice([0, 1000]),
                "retained": self._retained,
                "restart_delay": dice.choice([0.0, 0.01, 0.05]),
            },
        }

    def _begin(self):
        self._start()
        self._expect(self._driver.event("started", "over"), "started")

    def _start(self):
        spec = self._spec()
        self._note(f"driver {spec['options']}")
        self._driver = Driver(spec, self._points, self._log)
        self.outcome.counts["drivers"] += 1

    def _expect(self, event, *names):
        """Check that an event came; a driver that a point killed is started again."""
        while event is None:
            self._ended()
            self._start()
            event = self._driver.event("started", "over")
            names = ("started",)
        if event["event"] not in names:
            raise oracle.Wrong(f"the driver says {event} instead of {' or '.join(names)}")
        return event

    def _ended(self):
        """Check how a driver's process ended that said nothing."""
        code = self._driver.process.wait()
        if code != -signal.SIGKILL:
            raise oracle.Wrong(f"a driver ended with {code}")
        self._driver.end()
        self._driver = None

    def _open(self, part):
        fresh = self._folder / "gate.new"
        fresh.write_text(str(part))
        fresh.rename(self._folder / "gate")

    def _recover(self):
        """Wait until a checkpoint is complete, or the driver has ended."""
        before = self._newest()
        deadline = time.monotonic() + LIMIT
        while self._newest() <= before and self._is_alive():
            if time.monotonic() > deadline:
                raise Hang(f"no checkpoint within {LIMIT:g} s\n{self._driver.stacks()}")
            time.sleep(0.005)
        if not self._is_alive():
            self._expect(None, "started")

    def _is_alive(self):
        return self._driver.process.poll() is None

    def _newest(self):
        try:
            names = [
                one.name.removesuffix(".json") for one in (self._checkpoints / "log").iterdir()
            ]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    # Faults.

    def _strike(self):
        kind = self.dice.choices(list(self._kinds), list(self._kinds.values()))[0]
        if not self._is_alive():
            self._expect(None, "started")
        self._note(kind)
        happened = getattr(self, "_" + kind.replace(" ", "_"))()
        if happened is True:
            self.outcome.faults[kind] += 1
        elif happened is False:
            self.outcome.missed += 1

    def _at_point(self, point, action):
        file = self._points / point
        struck = self._points / f"struck-{point}"
        self._note(f"{action} at {point}")
        file.write_text(action)
        deadline = time.monotonic() + (ARMED_ON_SPARK if self._on_spark else ARMED)
        while not struck.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        with suppress(FileNotFoundError):
            file.unlink()
        # It may have been taken at the last moment.
        time.sleep(0.002)
        found = struck.exists()
        self._note("struck" if found else "missed")
        struck.unlink(missing_ok=True)
        if not found:
            return False
        # Counted here, since one fault may be the occasion of another.
        self.outcome.faults[f"{action} at {point.partition(',')[0]}"] += 1
        return None

    def _point_of_a_worker(self):
        point = self.dice.choice(OF_WORKERS)
        where = self.dice.choice(["before", "after"])
        actions = ["raise", "full", "kill", "kill", "stop", "cut control", "cut data", "sleep"]
        if point in {"discard", "read state", "deploy", "connect"} and self.dice.random() < 0.8:
            # These come after another fault.
            self._at_point("process", "raise")
        return self._at_point(f"{point}, {where}", self.dice.choice(actions))

    def _point_of_the_driver(self):
        point = self.dice.choice(OF_DRIVER)
        where = self.dice.choice(["before", "after"])
        if point in {"restore", "assignment"}:
            self._at_point("process", "raise")
        action = self.dice.choice(["raise", "full", "kill", "kill", "stop", "sleep"])
        return self._at_point(f"{point}, {where}", action)

    def _point_of_a_function(self):
        return self._at_point(self.dice.choice(self.functions), self.dice.choice(["raise", "kill"]))

    def _pause_at_a_point(self):
        point = self.dice.choice([*OF_WORKERS[:5], *OF_DRIVER[:2], *self.functions[:2]])
        where = "" if point in self.functions else self.dice.choice([", before", ", after"])
        return self._at_point(point + where, "sleep")

    def _kill_a_worker(self):
        return self._to_a_worker(lambda pid: send(pid, signal.SIGKILL))

    def _kill_an_executor(self):
        executors = self._driver.executors()
        return bool(executors) and send(self.dice.choice(executors), signal.SIGKILL)

    def _stop_a_worker(self):
        def stop(pid):
            send(pid, signal.SIGSTOP)
            time.sleep(self.dice.uniform(0.05, 0.4))
            return send(pid, signal.SIGCONT)

        return self._to_a_worker(stop)

    def _to_a_worker(self, act):
        workers = self._driver.workers()
        return bool(workers) and act(self.dice.choice(workers))

    def _cut_a_control_connection(self):
        return self._at_point("map", "cut control")

    def _cut_data_connections(self):
        return self._at_point(self.dice.choice(["map", "process"]), "cut data")

    def _full_disk(self):
        if not self._has_disk:
            return False
        filler = self._folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        time.sleep(self.dice.uniform(0.02, 0.3))
        filler.unlink()
        return True

    def _unwritable_folder(self):
        """Put a file in the place of a folder that snapshots or output are written to."""
        choices = [self._checkpoints / "tasks", self._checkpoints / "log"]
        choices += sorted((self._folder / "out").glob("*/_staging"))[:1]
        folder = self.dice.choice(choices)
        moved = self._folder / "moved"
        try:
            folder.rename(moved)
        except FileNotFoundError:
            return False
        with suppress(FileExistsError):
            folder.touch(exist_ok=False)
        time.sleep(self.dice.uniform(0.01, 0.1))
        if folder.is_dir():
            # The job made it anew, in that moment.
            for path in moved.iterdir():
                path.rename(folder / path.name)
            moved.rmdir()
        else:
            folder.unlink(missing_ok=True)
            moved.rename(folder)
        return True

    def _kill_the_driver(self):
        self._driver.end()
        self._driver = None
        self._begin()
        return True

    def _stop_the_driver(self):
        send(self._driver.process.pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.05, 0.4))
        return send(self._driver.process.pid, signal.SIGCONT)

    def _second_driver(self):
        first = self._driver
        stopped = self.dice.random() < 0.5
        if stopped:
            send(first.process.pid, signal.SIGSTOP)
        self._begin()
        if stopped:
            self._recover()
            send(first.process.pid, signal.SIGCONT)
        over = first.event("over")
        first.end()
        if over is None and first.process.returncode == -signal.SIGKILL:
            # A point had killed it a moment before.
            return True
        if over is None or over["state"] != "failed" or "another driver" not in over["error"]:
            raise oracle.Wrong(f"the first of two drivers ended with {over}")
        self._left(over)
        return True

    def _savepoint(self):
        folder = self._new_savepoint()
        self._driver.tell("savepoint", str(folder))
        event = self._driver.event("done", "failed", "over")
        if event is not None and event["event"] == "done":
            self._check_savepoint(folder)
        return True

    def _stop_with_a_savepoint(self):
        folder = self._new_savepoint()
        # Alone, or while another fault happens.
        if self.dice.random() < 0.5:
            point = self.dice.choice(["savepoint", "log", "commit", "finish", "snapshot file"])
            action = self.dice.choice(["raise", "full", "kill", "sleep"])
            where = self.dice.choice(["before", "after"])
            (self._points / f"{point}, {where}").write_text(action)
        self._driver.tell("stop", str(folder))
        return self._stopped(folder)

    def _stopped(self, folder):
        """Wait for the end of a driver that was told to stop; a savepoint that failed is no fault."""
        event = self._driver.event("done", "failed", "over")
        for file in self._points.iterdir():
            file.unlink()
        if event is None:
            self._expect(None, "started")
            return True
        if event["event"] == "failed":
            self.outcome.counts["savepoints failed"] += 1
            return True
        if event["event"] == "done":
            if folder is not None:
                self._check_savepoint(folder)
            event = self._driver.event("over")
        if event is None or event["state"] not in {"stopped", "cancelled"}:
            raise oracle.Wrong(f"a job that was stopped ended with {event}")
        self._left(event)
        self._driver.end()
        self._driver = None
        if folder is not None and self.dice.random() < 0.5:
            self._savepoint_of = str(folder)
            self._checkpoints = self._folder / f"checkpoints-{self._savepoints}"
            self.outcome.counts["starts from a savepoint"] += 1
        self._begin()
        return True

    def _stop(self):
        self._driver.tell("stop")
        return self._stopped(None)

    def _cancel(self):
        self._driver.tell("cancel")
        return self._stopped(None)

    def _new_savepoint(self):
        self._savepoints += 1
        return self._folder / f"savepoint-{self._savepoints}"

    def _check_savepoint(self, folder):
        judge = at_least_once if self._counts_only else oracle
        oracle.check_savepoint(folder, self._rows, self.outcome.seed, judge.check_state)
        self.outcome.counts["savepoints checked"] += 1

    # The end.

    def _finish(self):
        """Wait for the end of all rows; a point may be armed for it."""
        if self.dice.random() < 0.5:
            point = self.dice.choice(["finish", "commit", "log", "barrier"])
            where = self.dice.choice(["before", "after"])
            (self._points / f"{point}, {where}").write_text(self.dice.choice(["raise", "kill"]))
        while True:
            event = self._driver.event("over")
            if event is not None:
                break
            self._expect(None, "started")
        if event["state"] != "finished":
            raise oracle.Wrong(f"the job ended with {event}")
        self._left(event)
        self.outcome.counts["restarts"] += event["restarts"]

    def _left(self, event):
        if event["left"]:
            raise oracle.Wrong("\n".join(["left by a driver:", *event["left"]]))

    def _check(self):
        self.outcome.counts["rows"] += self._rows
        self._check_rows()
        for folder in (self._folder / "out").iterdir():
            staged = folder / "_staging"
            if staged.exists() and any(p.is_file() for p in staged.rglob("*.parquet")):
                raise oracle.Wrong(f"staged files are left in {staged}")

    def _check_rows(self):
        """Compare what the job has committed with the model."""
        counts, seed = self.outcome.counts, self.outcome.seed
        # Without a restart no guarantee lets a row count twice.
        has_restarted = counts["drivers"] > 1 or counts["restarts"] > 0
        judge = at_least_once if self._counts_only and has_restarted else oracle
        late, in_time, again = judge.check_output(self._folder / "out", self._rows, seed)
        counts["late rows"] += late
        counts["late rows in time"] += in_time
        counts["sessions again"] += again
        attempts, orphans = oracle.check_checkpoints(
            self._checkpoints, self._retained, self._rows, seed, judge.check_state
        )
        counts["unneeded attempts"] += attempts
        counts["orphans"] += orphans
        if self._counts_only:
            counts["jobs at least once"] += has_restarted
            counts["jobs at least once without a restart"] += not has_restarted
