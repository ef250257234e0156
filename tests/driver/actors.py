"""A coordinator with a simulated clock, and workers that are plain numbers."""

from headgate.control.cause import CANCELLED, Cause
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts, StageFacts
from headgate.spark.driver.runs.members import (
    AskVerdict,
    Broken,
    Cancel,
    Ended,
    EpochEnded,
    Kill,
    Send,
    Submit,
    Withdrawn,
)
from headgate.spark.driver.timing import Timing
from headgate.spark.wire.messages import Message

EXCHANGE = b"x" * 16
OTHER = b"y" * 16
TOTALS = {"rows": 5, "bytes": 50, "pages": 1, "peak": 10}
PLACE = {"host": "h", "port": 9, "partition_id": "aa" * 16, "process_id": "bb" * 16}


class Theatre:
    """Simulates workers and Spark around a coordinator, and records the effects it asks for."""

    def __init__(self, slots=4, partitions=2, retries=None, *, holds_slots=True):
        self.coordinator = Coordinator(retries or Retries(), Timing())
        self.coordinator.slots = slots
        for exchange in (EXCHANGE, OTHER):
            self.coordinator.exchanges[exchange] = ExchangeFacts(
                partitions, holds_slots=holds_slots
            )
        self.now = 100.0
        self.connections = 0
        self.attempts = 0
        self.sent = {}
        self.known = {}
        self.submitted, self.cancelled, self.asked, self.ended = [], [], [], []
        self.killed, self.epochs = [], []
        self.broken, self.withdrawn = [], []
        #: True while Spark is seen to run each attempt that a consumer names.
        self.confirms = True

    def settle(self):  # noqa: C901 - one row per effect
        """Run one round of the coordinator's loop."""
        for consumer in self.coordinator.consumers:
            consumer.is_confirmed |= self.confirms
        self.coordinator.stage_facts(self.facts())
        self.coordinator.tick(self.now)
        runs = self.coordinator.runs
        for effect in self.coordinator.take_effects():
            match effect:
                case Send(connection=connection, message=message):
                    self.sent.setdefault(connection, []).append(message)
                case Submit(run=run):
                    self.submitted.append(runs[run])
                case Cancel(run=run):
                    self.cancelled.append(runs[run])
                case AskVerdict(member=member):
                    self.asked.append(member)
                case Kill(member=member):
                    self.killed.append(member)
                case EpochEnded(run=run, epoch=epoch, cause=cause):
                    self.epochs.append((runs[run], epoch, cause))
                case Ended(run=run, cause=cause):
                    self.ended.append((runs[run], cause))
                case Broken(exchange_id=exchange, cause=cause):
                    self.broken.append((exchange, cause))
                case Withdrawn(exchange_id=exchange):
                    self.withdrawn.append(exchange)

    def facts(self):
        """Return what Spark says of the stages that consumers have named."""
        asked, known = self.coordinator.stages, self.known
        return {key: known[key[1]] for key in asked if key[1] in known}

    def wait(self, seconds):
        """Advance the clock."""
        self.now += seconds
        self.settle()

    def stage(self, stage, num_tasks, completed=0, status="ACTIVE"):
        """Set Spark's facts of a stage."""
        self.known[stage] = StageFacts(status, num_tasks, completed)
        self.settle()

    def say(self, connection, kind, fields=None, run=0, exchange=EXCHANGE, epoch=0):
        """Send a message to the coordinator."""
        message = Message(kind, run, epoch, fields or {})
        self.coordinator.message(connection, exchange, message, self.now)
        self.settle()

    def consumer(self, index, stage=1, partition=None, exchange=EXCHANGE, attempt=None):
        """Register a consumer; return its connection."""
        self.connections += 1
        self.attempts += 1
        fields = {
            "stage": stage,
            "partition": index if partition is None else partition,
            "attempt": attempt or self.attempts,
            "index": index,
        }
        self.say(self.connections, "CONSUMER", fields, exchange=exchange)
        return self.connections

    def producer(self, run, partition, exchange=EXCHANGE, attempt=None, stage=50, epoch=None):
        """Start a producer task; return its connection."""
        self.connections += 1
        self.attempts += 1
        fields = {"stage": stage, "partition": partition, "attempt": attempt or self.attempts}
        epoch = run.epoch if epoch is None else epoch
        self.say(self.connections, "PRODUCER", fields, run.number, exchange, epoch)
        return self.connections

    def done(self, connection, run=0, exchange=EXCHANGE, epoch=0):
        """End a task successfully."""
        self.say(connection, "DONE", TOTALS, run, exchange, epoch)
        self.hang_up(connection)

    def hang_up(self, connection, error=None):
        """Close a connection, with the error in its last bytes if there was one."""
        self.coordinator.closed(connection, error)
        self.settle()

    def fail(self, connection, code, run=0, summary="boom", epoch=0):
        """Report an error of a task."""
        fields = Cause(code, summary, text="its traceback").fields()
        self.say(connection, "FAILED", fields, run, epoch=epoch)

    def job_ended(self, run, partitions=(), error=None, epoch=None):
        """End a producer job, by default that of the current epoch."""
        epoch = run.epoch if epoch is None else epoch
        self.coordinator.job_ended(run.number, epoch, error, set(partitions))
        self.settle()

    def verdict(self, status, text=""):
        """Answer the oldest question about a task."""
        self.coordinator.verdict(self.asked.pop(0), status, text)
        self.settle()

    def kinds(self, connection):
        """Return the kinds of messages that a connection got."""
        return [message.kind for message in self.sent.get(connection, [])]

    def last(self, connection):
        """Return the last message that a connection got."""
        return self.sent[connection][-1]


def started(theatre, partitions=2):
    """Start consumers, two by default, and a run with its first producer."""
    theatre.stage(1, partitions)
    consumers = [theatre.consumer(index) for index in range(partitions)]
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.say(producer, "REGISTERED", PLACE, run.number)
    return consumers, run, producer


def ready(theatre, run, *consumers):
    """Report consumers as ready for the next epoch, having yielded nothing in the last one."""
    for consumer in consumers:
        theatre.say(consumer, "READY", run=run.number, epoch=run.epoch - 1)


def job_over(theatre, run):
    """End the job of the last epoch."""
    theatre.job_ended(run, error=CANCELLED, epoch=run.epoch - 1)


def flows(theatre, run):
    """Run an epoch to its successful end: one producer, then all present consumers."""
    producer = theatre.producer(run, 0)
    theatre.say(producer, "REGISTERED", PLACE, run.number, epoch=run.epoch)
    theatre.done(producer, run.number, epoch=run.epoch)
    theatre.job_ended(run, [0])
    for consumer in list(run.roster.consumers.values()):
        if consumer.is_present:
            theatre.done(consumer.connection, run.number, epoch=run.epoch)
    assert run.is_over
    assert run.cause is None
