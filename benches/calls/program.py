"""A program that calls the service, as the bench sees it: a process that says when it is ready, and when it is done.

It prints READY, waits for a line, does its job, and prints DONE. What a job is about is JSON, its last argument.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benches.environments import PeerError, end

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a wait is a hang.
LIMIT = 300
#: Seconds in which a program ends whose job is done.
END = 20


class Program:
    """A process with a job; a context manager, which kills it and what it has started.

    Args:
        command: its words, without the order.
        order: what the job is about.
        log: file for what else it prints.
        environ: variables beside those of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        order: Mapping[str, Any],
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END)
        # Not all programs end what they have started.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def begin(self) -> None:
        """Wait until the program is ready, and let it do its job.

        Raises:
            PeerError: it has ended.
        """
        self._wait_for("READY")
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Wait until the job is done.

        Raises:
            PeerError: it has failed.
        """
        self._wait_for("DONE")

    def _wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == word:
                return
        texts = self._log.read_text(encoding="utf-8", errors="replace")
        raise PeerError(f"a program ended with {self._process.wait()}\n{end(texts)}")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process alone."""
        self._process.kill()
        self._process.wait()


def kill_one(pids: Path, draw: random.Random) -> None:
    """Kill one of the processes that call; wait for one if there is none."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        alive = sorted(
            int(path.name) for path in pids.iterdir() if Path("/proc", path.name).exists()
        )
        if alive:
            chosen = draw.choice(alive)
            os.kill(chosen, signal.SIGKILL)
            (pids / str(chosen)).unlink()
            return
        time.sleep(0.05)
    raise PeerError(f"no process calls for {LIMIT} s")


def wait_until(condition: Callable[[], bool], program: Program) -> None:
    """Wait for a condition.

    Raises:
        PeerError: the program has ended, or it takes too long.
    """
    deadline = time.monotonic() + LIMIT
    while not condition():
        if not program.is_alive or time.monotonic() > deadline:
            raise PeerError("a program has ended too soon, or does not go on")
        time.sleep(0.1)
