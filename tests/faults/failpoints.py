"""Failpoints on the control messages of Spark's processes, set by a test.

A point is ``ROLE WHEN KIND``. The role is producer, consumer, heartbeat (a worker's second
connection) or driver. WHEN is sends, sent, received or handled. KIND is the kind of a message.
Production code has no failpoints: :func:`environment` puts ``site/`` on the PYTHONPATH of the
processes, and the code there adds them.

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
    """Return the environment variables of a process whose failpoints have rules in ``folder``."""
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, VARIABLE: str(folder)}


class Failpoints:
    """The rules of all processes that share a folder."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rules = []

    def set(self, point, action, *, times=1, skip=0, chance=1.0, seed=0, seconds=0.0):
        """Add a rule that holds in all processes from now on.

        Args:
            point: the point, as in the docstring of this module.
            action: kill or stop the process, sleep, raise an error, hang up (workers only).
            times: maximum number of hits on which the rule acts, over all processes.
            skip: number of hits before the first one on which the rule acts.
            chance: probability of each action, drawn from the seed and the number of the hit.
            seed: seed of the draws.
            seconds: duration of a sleep.
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
        """Remove all rules and the records of their hits."""
        self._rules = []
        self._write()
        for pattern in ("fired-*", "pass-*"):
            for note in self._folder.glob(pattern):
                note.unlink()

    def fired(self):
        """Return the actions in order, each with point, action, pid, parent (pid), at (seconds)."""
        notes = [json.loads(note.read_text()) for note in self._folder.glob("fired-*")]
        return sorted(notes, key=lambda note: note["at"])

    def passes(self):
        """Return the number of hits of all points that have a rule."""
        return len(list(self._folder.glob("pass-*")))

    def _write(self):
        draft = self._folder / "rules.draft"
        draft.write_text(json.dumps(self._rules))
        draft.rename(self._folder / "rules.json")
