"""Messages of all kinds in all orders: no error of the coordinator's own, and another exchange works on."""

import os
import random

from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre
from tests.driver.test_messages import EXAMPLES
from tests.driver.test_source_readers import Enumerator

from headgate.control.cause import CANCELLED, Cause
from headgate.errors import ProtocolError
from headgate.spark.driver.runs.formation import StageFacts
from headgate.spark.driver.runs.members import Consumer, Producer
from headgate.spark.driver.runs.readers import Readers
from headgate.spark.driver.waits.waiting import SlotFacts
from headgate.spark.wire.messages import Message, decode, encode

#: Number of scripts of 100 steps; HEADGATE_TEST_SCHEDULES=3000 plays more.
COUNT = min(int(os.environ.get("HEADGATE_TEST_SCHEDULES", "200")), 100_000)
FIRST = int(os.environ.get("HEADGATE_TEST_SEED", "0"))
#: The stage of the other exchange, whose number everyone may guess, and the attempts of its tasks.
STAGE, ATTEMPTS = 2, frozenset({3, 4})
CODES = ["HG-2301", "HG-3001", "HG-3003", "HG-3004", "HG-6001", "HG-6002", "", "HG"]

#: What workers say once they have registered; each may be said out of turn.
OF_CONSUMERS = ["PROGRESS", "READY", "YIELDED", "DONE", "STOPPED", "FAILED"]
OF_PRODUCERS = ["PROGRESS", "REGISTERED", "DONE", "STOPPED", "FAILED", "READY"]
OF_READERS = ["READER", "SPLIT_REQUEST", "SPLITS_FINISHED", "SOURCE_EVENT", "WATERMARK"]
ENDINGS = [None, None, CANCELLED, Cause("HG-6002", "x"), Cause("HG-3001", "x")]
STATUSES = ["SUCCESS", "FAILED", "KILLED", ""]
TEXTS = ["boom", "", "Python worker exited unexpectedly (crashed)", "cancelled"]
#: Each step as often as it is here.
STEPS = ["say"] * 8 + ["begin"] * 5 + ["wait", "other"] * 2
STEPS += ["close", "silence", "job", "verdict", "outcome", "stage", "refuse"]


class Scene(Theatre):
    """Workers of one exchange that say anything, beside a run of another exchange."""

    def __init__(self, script, *, has_source, tasks):
        super().__init__(slots=50)
        self.random = random.Random(script)
        self.log = []
        self.coordinator._retries = type(self.coordinator._retries)(tasks, 3)
        self.coordinator.slot_facts = SlotFacts(50, 5)
        self.confirms, self.has_source = False, has_source
        self.stages = {}
        self.script = self.other_run()

    def facts(self):
        """Return what Spark says, also of the stages of runs whose consumers are gone."""
        coordinator = self.coordinator
        own = {STAGE: StageFacts("ACTIVE", 2, 0, running=ATTEMPTS)}
        return {
            key: own[STAGE] if key == (OTHER, STAGE) else StageFacts(self.stages[key[1]], 9, 0)
            for key in coordinator.stages | {run.key for run in coordinator.live_runs}
            if key == (OTHER, STAGE) or (key[0] == EXCHANGE and key[1] in self.stages)
        }

    def settle(self):
        super().settle()
        for run in self.submitted:
            if self.has_source and run.exchange_id == EXCHANGE and run.readers is None:
                run.readers = Readers(run, Enumerator())

    def play(self, steps):
        """Play so many steps."""
        for _ in range(steps):
            step = self.random.choice(STEPS)
            self.log.append(step)
            getattr(self, f"play_{step}")()
            self.settle()

    @property
    def connection(self):
        """One of the connections."""
        return self.random.randint(1, 6)

    def play_say(self):
        connection = self.connection
        member = self.coordinator.members.get(connection)
        match self.random.random(), member:
            case (rate, _) if rate < 0.2:
                kinds = sorted(EXAMPLES)
            case _, Consumer():
                kinds = OF_CONSUMERS
            case _, Producer():
                kinds = OF_PRODUCERS + OF_READERS * self.has_source
            case _:
                kinds = ["CONSUMER", "PRODUCER"]
        self.hear(connection, self.message(self.random.choice(kinds), member))

    def play_begin(self):
        connection = self.connection
        self.hang_up(connection)
        self.hear(connection, self.message(self.random.choice(["CONSUMER", "PRODUCER"]), None))

    def play_close(self):
        self.hang_up(self.connection)

    def play_silence(self):
        self.coordinator.silent(self.connection, "h", 10.0)

    def play_wait(self):
        self.wait(self.random.choice([0.1, 1.1, 1.1, 3.0, 70.0]))

    def play_job(self):
        runs = [run for run in self.coordinator.runs.values() if run.exchange_id == EXCHANGE]
        if runs:
            run, error = self.random.choice(runs), self.random.choice(ENDINGS)
            done = {p.partition for p in run.roster.producers.values() if p.is_done}
            epoch = self.random.choice([run.epoch, max(0, run.epoch - 1), 3])
            self.job_ended(run, done if self.random.random() < 0.8 else {3}, error, epoch)

    def play_verdict(self):
        if self.asked and self.asked[0].exchange_id == EXCHANGE:
            self.verdict(self.random.choice(STATUSES), self.random.choice(TEXTS))

    def play_outcome(self):
        status, text = self.random.choice(STATUSES[:3]), self.random.choice(TEXTS)
        for consumer in list(self.coordinator.outcomes.consumers.values()):
            self.coordinator.task_ended(consumer, status, text, self.now)

    def play_stage(self):
        status = self.random.choice(["ACTIVE", "ACTIVE", "COMPLETE", "FAILED"])
        self.stages[self.random.randint(0, 3)] = status

    def play_refuse(self):
        if self.random.random() < 0.2:
            stages = self.coordinator.stages
            self.coordinator.refuse({key for key in stages if key[0] == EXCHANGE})

    def play_other(self):
        next(self.script, None)

    def message(self, kind, member):
        """Return a message; most have the run and epoch that their sender would give."""
        number = self.random.randint
        fields = {
            name: number(0, 1 if name in {"index", "stage"} else 4)
            if isinstance(value, int) and not isinstance(value, bool) and name != "port"
            else value
            for name, value in EXAMPLES[kind].items()
        }
        if "code" in fields:
            fields["code"] = self.random.choice(CODES)
        run, epoch = number(0, 3), number(0, 3)
        if self.random.random() < 0.85:
            run, epoch = self.own(kind, member)
        self.log[-1] = (self.log[-1], kind, run, epoch, fields)
        return Message(kind, run, epoch, fields)

    def own(self, kind, member):
        """Return the run and epoch of a sender, or those of the run that it could join."""
        live = [run for run in self.coordinator.live_runs if run.exchange_id == EXCHANGE]
        if member is None:
            run = live[-1] if live and kind == "PRODUCER" else None
        else:
            run = self.coordinator.runs.get(member.run)
        if run is None:
            return 0, 0
        # A consumer gets ready for the next epoch in the one that has ended.
        late = kind in {"READY", "YIELDED"}
        return run.number, getattr(member, "epoch", max(0, run.epoch - late))

    def hear(self, connection, message):
        """Take a message as the server does: one that is refused ends its connection."""
        try:
            message = decode(encode(message))
            self.coordinator.message(connection, EXCHANGE, message, self.now)
            self.settle()
        except ProtocolError as error:
            self.hang_up(connection, error)

    def other_run(self):
        """Play a run of the other exchange, step by step."""
        self.connections, self.attempts = 100, 2
        consumers = [self.consumer(0, STAGE, exchange=OTHER)]
        yield
        consumers.append(self.consumer(1, STAGE, exchange=OTHER))
        assert [c.attempt for c in self.members_of(OTHER)] == [3, 4]
        while not (runs := [run for run in self.submitted if run.exchange_id == OTHER]):
            yield
            self.wait(0.5)
        (run,) = runs
        yield
        producer = self.producer(run, 0, OTHER)
        assert self.kinds(producer) == ["GO"]
        yield
        self.say(producer, "REGISTERED", PLACE, run.number, OTHER)
        assert [self.kinds(c) for c in consumers] == [["START", "PARTITION"]] * 2
        yield
        self.done(producer, run.number, OTHER)
        yield
        self.job_ended(run, [0])
        yield
        for consumer in consumers:
            assert self.kinds(consumer) == ["START", "PARTITION", "SEALED"]
            self.done(consumer, run.number, OTHER)
            assert self.last(consumer).kind == "OK"
            yield
        assert (run, None) in self.ended

    def end(self):
        """End all tasks and jobs, and the stages."""
        for connection in list(self.coordinator.members):
            self.hang_up(connection)
        self.stages = dict.fromkeys(range(5), "FAILED")
        for _ in range(8):
            while self.asked:
                self.verdict("FAILED", "gone")
            for run in list(self.coordinator.runs.values()):
                for epoch in list(run.epochs.jobs.left):
                    self.job_ended(run, error=CANCELLED, epoch=epoch)
            self.wait(20.0)

    def members_of(self, exchange):
        return [c for c in self.coordinator.consumers if c.exchange_id == exchange]


@seed(FIRST)
@settings(max_examples=COUNT, deadline=None, database=None)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([1, 4]))
def test_no_order_of_messages_breaks_the_coordinator_or_another_exchange(script, has_source, tasks):
    scene = Scene(script, has_source=has_source, tasks=tasks)
    try:
        scene.play(100)
        for _ in scene.script:
            scene.settle()
        assert not scene.broken
        assert not [m for m in scene.killed if m.exchange_id == OTHER]
        scene.end()
    except Exception as error:
        error.add_note(f"script {script}: {scene.log}")
        raise
    assert not scene.coordinator.runs
    assert not scene.coordinator.formation.waiting
    assert not scene.coordinator.outcomes.consumers


def test_a_consumer_that_fails_before_it_has_a_run_is_forgotten():
    """Two messages ended the coordinator: its stage was forgotten, and it still waited for a run."""
    theatre = Theatre()
    consumer = theatre.consumer(0)
    theatre.fail(consumer, "HG-6001")
    theatre.wait(5.0)
    assert not theatre.coordinator.formation.waiting
    assert not theatre.submitted
    assert isinstance(theatre.coordinator.members[consumer], Consumer)
    other = theatre.consumer(0, stage=7, exchange=OTHER)
    theatre.wait(1.1)
    assert [run.exchange_id for run in theatre.submitted] == [OTHER]
    theatre.say(other, "DONE", TOTALS, exchange=OTHER)
    assert theatre.last(other).kind == "OK"
