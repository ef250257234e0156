"""Failpoints on the control messages of Spark's processes, set by a test.

A point is ``ROLE WHEN KIND``: role is producer, consumer, heartbeat (a worker's second connection) or
driver; when is sends, sent, received or handled; kind is a message's. The code that runs in the
processes is in ``site/``, which :func:`environment` puts on their PYTHONPATH: production code has no
part of it.

    failpoints.set("producer sent REGISTERED", "kill")
    failpoints.set("consumer handled START", "stop", times=2)
    failpoints.set("driver sends PARTITION", "sleep", seconds=0.5, times=1000, chance=0.1, seed=7)
"""

import json
import os
import uuid
from pathlib import Path

SITE = Path(__file__).parent / "site"
VARIABLE = "HEADGATE_TEST_FAILPOINTS"
ACTIONS = ("kill", "stop", "sleep", "raise", "hang up")


def environment(folder):
    """Return the environment of a process that is to have failpoints, their rules in a folder."""
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, VARIABLE: str(folder)}


class Failpoints:
    """The rules of all processes that share a folder."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rules = []

    def set(self, point, action, *, times=1, skip=0, chance=1.0, seed=0, seconds=0.0):
        """Add a rule, for all processes from now on.

        Args:
            point: where, see above.
            action: kill or stop the process, sleep, raise an error, hang up (workers only).
            times: how often at most, all processes together.
            skip: how many are to pass before.
            chance: of each time, drawn from the seed and its number.
            seed: of the lots.
            seconds: to sleep.
        """
        assert action in ACTIONS, action
        assert len(point.split()) == 3, point
        rule = {"point": point, "action": action, "times": times, "skip": skip}
        name = uuid.uuid4().hex
        self._rules.append(
            {**rule, "chance": chance, "seed": seed, "seconds": seconds, "name": name}
        )
        self._write()

    def clear(self):
        """Remove all rules and the notes of what they did."""
        self._rules = []
        self._write()
        for pattern in ("fired-*", "pass-*"):
            for note in self._folder.glob(pattern):
                note.unlink()

    def fired(self):
        """Return what was done: point, action, pid, parent (its pid) and at (seconds), in order."""
        notes = [json.loads(note.read_text()) for note in self._folder.glob("fired-*")]
        return sorted(notes, key=lambda note: note["at"])

    def passes(self):
        """Return how often points with a rule were passed."""
        return len(list(self._folder.glob("pass-*")))

    def _write(self):
        draft = self._folder / "rules.draft"
        draft.write_text(json.dumps(self._rules))
        draft.rename(self._folder / "rules.json")
