"""Messages of all kinds in all orders: no error of the coordinator's own, and another exchange works on."""

import os

from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre
from tests.driver.test_messages import EXAMPLES
from tests.driver.test_source_readers import Enumerator

from headgate.errors import ProtocolError
from headgate.spark.driver.runs.formation import StageFacts
from headgate.spark.driver.runs.members import Consumer
from headgate.spark.driver.runs.readers import Readers
from headgate.spark.driver.waits.waiting import SlotFacts
from headgate.spark.wire.cause import CANCELLED, Cause
from headgate.spark.wire.messages import Message, decode, encode

#: Number of scripts of up to 40 steps; HEADGATE_TEST_SCHEDULES=20000 plays more.
COUNT = min(int(os.environ.get("HEADGATE_TEST_SCHEDULES", "400")), 100_000)
FIRST = int(os.environ.get("HEADGATE_TEST_SEED", "0"))
#: The stage of the other exchange, whose number everyone may guess, and the attempts of its tasks.
STAGE, ATTEMPTS = 2, frozenset({3, 4})
CODES = ["HG-2301", "HG-3001", "HG-3003", "HG-3004", "HG-6001", "HG-6002", "", "HG"]

connections = st.integers(1, 5)
small = st.integers(0, 4)


def fields_of(kind):
    """Return a strategy for the fields of a message: its example, with other numbers and codes."""
    changed = {
        name: small
        for name, value in EXAMPLES[kind].items()
        if isinstance(value, int) and not isinstance(value, bool) and name != "port"
    }
    if "code" in EXAMPLES[kind]:
        changed["code"] = st.sampled_from(CODES)
    return st.fixed_dictionaries(changed).map(lambda found: {**EXAMPLES[kind], **found})


messages = st.sampled_from(sorted(EXAMPLES)).flatmap(
    lambda kind: st.builds(Message, st.just(kind), st.integers(0, 3), small, fields_of(kind))
)
registrations = st.sampled_from(["CONSUMER", "CONSUMER", "PRODUCER"]).flatmap(
    lambda kind: st.builds(Message, st.just(kind), st.integers(0, 3), small, fields_of(kind))
)
endings = st.sampled_from([None, CANCELLED, Cause("HG-6002", "x"), Cause("HG-3001", "x")])
steps = st.one_of(
    st.tuples(st.just("say"), connections, st.one_of(messages, registrations)),
    st.tuples(st.just("begin"), connections, registrations),
    st.tuples(st.just("close"), connections),
    st.tuples(st.just("silence"), connections),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.1, 3.0, 70.0])),
    st.tuples(st.just("job"), small, small, endings),
    st.tuples(st.just("verdict"), st.sampled_from(["SUCCESS", "FAILED", "KILLED", ""])),
    st.tuples(st.just("outcome"), st.sampled_from(["SUCCESS", "FAILED", "KILLED"])),
    st.tuples(st.just("stage"), small, st.sampled_from(["ACTIVE", "COMPLETE", "FAILED"])),
    st.just(("refuse",)),
    st.just(("other",)),
)


class Scene(Theatre):
    """Workers of one exchange that say anything, beside a run of another exchange."""

    def __init__(self, *, has_source, tasks):
        super().__init__(slots=50)
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

    def play(self, step):
        name, *about = step
        getattr(self, f"play_{name}")(*about)
        self.settle()

    def play_say(self, connection, message):
        self.hear(connection, message)

    def play_begin(self, connection, message):
        self.hang_up(connection)
        self.hear(connection, message)

    def play_close(self, connection):
        self.hang_up(connection)

    def play_silence(self, connection):
        self.coordinator.silent(connection, "h", 10.0)

    def play_wait(self, seconds):
        self.wait(seconds)

    def play_job(self, number, epoch, error):
        run = self.coordinator.runs.get(number)
        if run is not None and run.exchange_id == EXCHANGE:
            self.job_ended(run, {0, 1} if error is None else (), error, epoch)

    def play_verdict(self, status):
        if self.asked and self.asked[0].exchange_id == EXCHANGE:
            self.verdict(status, "boom")

    def play_outcome(self, status):
        for consumer in list(self.coordinator.outcomes.consumers.values()):
            self.coordinator.task_ended(consumer, status, "boom", self.now)

    def play_stage(self, stage, status):
        self.stages[stage] = status

    def play_refuse(self):
        self.coordinator.refuse({key for key in self.coordinator.stages if key[0] == EXCHANGE})

    def play_other(self):
        next(self.script, None)

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
@given(st.lists(steps, max_size=40), st.booleans(), st.sampled_from([1, 4]))
def test_no_order_of_messages_breaks_the_coordinator_or_another_exchange(script, has_source, tasks):
    scene = Scene(has_source=has_source, tasks=tasks)
    for step in script:
        scene.play(step)
    for _ in scene.script:
        scene.settle()
    assert not scene.broken
    assert not [m for m in scene.killed if m.exchange_id == OTHER]
    scene.end()
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
