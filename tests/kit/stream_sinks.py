"""A streaming job in one thread that crashes and restarts, for tests of stream sinks against a naive model."""

import dataclasses
import pickle

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kit import sinks

from headgate.sink import CommitterContext, WriterContext

JOB = "job-1"


@dataclasses.dataclass
class Stored:
    """The last complete checkpoint: rows before the position, and what their commit needs."""

    checkpoint: int | None = None
    position: int = 0
    committables: tuple[bytes, ...] = ()


class StreamJob:
    """Writes the numbers 0, 1, 2 and so on. A crash may come before any step; then the job restarts.

    Args:
        make_sink: returns the sink, given the faults of this run of the job.
        visible: returns the visible numbers.
        faults: the first run's; each restart has new ones.
    """

    def __init__(self, make_sink, visible, faults=None):
        self.make_sink, self.visible = make_sink, visible
        self.stored = Stored()
        self.runs = self.checkpoints = 0
        self.crashes = []
        self.faults = faults or sinks.Faults()
        self.surely(self.start)

    def start(self, parallelism=2):
        self.runs += 1
        self.position, self.carried = self.stored.position, []
        self.sink = pickle.loads(pickle.dumps(self.make_sink(None)))
        self.sink = self.make_sink(self.faults)
        self.committer = self.sink.create_committer(CommitterContext(JOB))
        restored = self.stored.checkpoint
        self.step("start", self.committer.start, restored)
        if restored is not None:
            self.step("commit again", self.committer.commit, restored, self.stored.committables)
        self.step("abort unknown", self.committer.abort_unknown, [])
        self.writers = [
            self.sink.create_writer(
                WriterContext(JOB, index, parallelism, f"run{self.runs}", restored)
            )
            for index in range(parallelism)
        ]
        # Checkpoints of a run that is over are numbered on from the restored one.
        self.checkpoints = 0 if restored is None else restored

    def step(self, name, call, *args, **options):
        """Call; the job may die before and after it."""
        self.faults.step("before", name)
        result = call(*args, **options)
        self.faults.step("after", name)
        return result

    def surely(self, action, *args):
        """Run an action; after a crash, restart the job without further faults."""
        try:
            action(*args)
        except sinks.Crash:
            self.crashes.append(self.faults.seen[-1])
            # A process that dies does not close its writers.
            self.faults = sinks.Faults()
            self.start()
            self.check()

    def write(self, task, count):
        numbers = pa.array(range(self.position, self.position + count), pa.int64())
        batch = pa.record_batch({"n": numbers})
        self.step("write", self.writers[task % len(self.writers)].write, batch)
        self.position += count

    def prepare(self, tasks):
        self.checkpoints += 1
        for writer in self.writers[:tasks]:
            writer.flush(end_of_input=False)
            found = self.step("prepare", writer.prepare_commit, self.checkpoints)
            if found is not None:
                self.carried.append(found)

    def abort_checkpoint(self, tasks):
        """Take a checkpoint that only some tasks reach."""
        self.prepare(tasks % len(self.writers))

    def checkpoint(self, is_heard=True):
        """Complete a checkpoint; until tasks hear of it, they put its committables into later ones too."""
        self.prepare(len(self.writers))
        self.stored = Stored(self.checkpoints, self.position, tuple(self.carried))
        if is_heard:
            self.carried = []
        self.step("commit", self.committer.commit, self.checkpoints, self.stored.committables)
        self.check()

    def repeat(self):
        """Commit the last checkpoint once more."""
        if self.stored.checkpoint is not None:
            call, stored = self.committer.commit, self.stored
            self.step("commit", call, stored.checkpoint, stored.committables)
            self.check()

    def restart(self, parallelism):
        for writer in self.writers:
            writer.close()
        self.committer.close()
        self.start(parallelism)
        self.check()

    def check(self):
        found, wanted = sorted(self.visible()), list(range(self.stored.position))
        if self.sink.delivery == "exactly_once":
            assert found == wanted, self.faults.seen[-5:]
        else:
            assert set(found) >= set(wanted)

    def end(self):
        self.checkpoint()
        for writer in self.writers:
            writer.close()
            writer.close()
        self.committer.close()
        self.committer.close()


def play(job, script):
    """Play a script of names of methods with their arguments."""
    for name, *args in script:
        job.surely(getattr(job, name), *args)
    job.surely(job.end)


#: Every action once; crashes are tried before each of its steps.
SCRIPT = (
    ("write", 0, 3),
    ("write", 1, 2),
    ("checkpoint",),
    ("write", 0, 2),
    ("abort_checkpoint", 1),
    ("write", 1, 4),
    ("write", 0, 1),
    ("checkpoint", False),
    ("write", 0, 1),
    ("checkpoint", False),
    ("checkpoint",),
    ("repeat",),
    ("write", 1, 3),
    ("restart", 3),
    ("write", 2, 5),
    ("abort_checkpoint", 2),
)

#: Actions in any order.
ACTION = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("abort_checkpoint"), st.integers(0, 2)),
    st.just(("repeat",)),
    st.tuples(st.just("restart"), st.integers(1, 3)),
)


def any_script(examples, actions, steps):
    """Return a decorator for a test of a script with a crash at a step."""

    def decorate(test):
        quiet = [HealthCheck.function_scoped_fixture]
        chosen = settings(deadline=None, max_examples=examples, suppress_health_check=quiet)
        return chosen(given(st.lists(ACTION, max_size=actions), st.integers(1, steps))(test))

    return decorate


def crash_everywhere(make_job, folder, every, check):
    """Play the script with a crash before each ``every``-th step; return the kinds of steps that met one."""
    faults = sinks.Faults()
    whole = make_job(folder / "counted", faults)
    play(whole, SCRIPT)
    assert whole.crashes == []
    crashed = set()
    for number in range(1, len(faults.seen) + 1, every):
        path = folder / f"crash-{number}"
        crashing = make_job(path, sinks.Faults(number))
        play(crashing, SCRIPT)
        check(path, crashing.crashes)
        crashed.update(crashing.crashes)
    return crashed
