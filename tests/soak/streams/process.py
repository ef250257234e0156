"""A process that runs the job, as the test sees it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.kit import processes

ROOT = Path(__file__).resolve().parents[3]
#: Seconds after which a wait is a hang.
LIMIT = 120.0


class Hang(AssertionError):
    """A job that did not go on."""


class Driver:
    """A process that runs the job."""

    def __init__(self, spec, points, log):
        self._log = log
        # A mark of its own: the driver looks for what it left, and another one may run beside it.
        temporary = points.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        others = {name: value for name, value in os.environ.items() if name != processes.MARK}
        environment = {
            **others,
            # A driver that is killed leaves its folder there.
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
            "HEADGATE_STREAM_POINTS": str(points),
            "PYTHONFAULTHANDLER": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.streams.driver", json.dumps(spec)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._events = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.over = None

    def _read(self):
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def tell(self, *words):
        """Send a command."""
        with suppress(BrokenPipeError):
            self.process.stdin.write((" ".join(words) + "\n").encode())
            self.process.stdin.flush()

    def event(self, *names, seconds=LIMIT):
        """Return the next event of some names, or None if the process has ended."""
        deadline = time.monotonic() + seconds
        while True:
            if self.over is not None and "over" in names:
                return self.over
            try:
                found = self._events.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                raise Hang(
                    f"no event {' or '.join(names)} within {seconds:g} s\n{self.stacks()}"
                ) from None
            if found is None:
                self._events.put(None)
                return None
            if found["event"] == "over":
                self.over = found
            if found["event"] in names:
                return found

    def executors(self):
        """Return Spark's executors."""
        return [one.pid for one in self._family() if one.kind == "executor"]

    def _family(self):
        """Return all processes below the driver."""
        return processes.family(self.process.pid, "of no process").values()

    def workers(self):
        """Return the processes that the driver has started for the tasks of the job."""
        found = []
        with suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in found if b"headgate.stream.job.process" in _command(pid)]

    def stacks(self):
        """Return the stacks of the driver and its workers."""
        before = self._log.stat().st_size
        for pid in [self.process.pid, *self.workers()]:
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGUSR1)
            time.sleep(0.3)
        with self._log.open() as file:
            file.seek(before)
            return file.read()

    def end(self):
        """Kill the process, and wait until all that it has started has ended too."""
        workers = [one.pid for one in self._family()]
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                stream.close()
        for pid in workers:
            # One that is stopped does not see that the driver is gone.
            send(pid, signal.SIGCONT)
        deadline = time.monotonic() + LIMIT
        while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
            if time.monotonic() > deadline:
                raise Hang(f"processes {alive} outlive their driver")
            time.sleep(0.01)


def send(pid, number):
    """Send a signal; return False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
