"""Simulated tasks and a simulated Spark around the real coordinator, in random order.

A schedule draws one enabled step after another from a seed. Tasks are killed, freeze and lose
connections, and Spark retries them. At the end each partition must have the rows of all producers,
all of them of one epoch.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from headgate.control.cause import CANCELLED, Cause
from headgate.spark.driver.coordinator import Coordinator
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts, StageFacts
from headgate.spark.driver.runs.members import AskVerdict, Cancel, EpochEnded, Kill, Send, Submit
from headgate.spark.driver.timing import Timing
from headgate.spark.wire.messages import Message

EXCHANGE = b"x" * 16
STAGE = 1
GONE = "Python worker exited unexpectedly (crashed)"
TOTALS = {"rows": 1, "bytes": 1, "pages": 1, "peak": 1}
FAULTS = ("kill consumer", "kill producer", "freeze consumer", "freeze producer", "cut")


@dataclass(eq=False)
class Task:
    """One attempt of a consumer (``job`` is None) or of a producer."""

    number: int
    attempt: int
    job: object = None
    connection: int = 0
    status: str = "RUNNING"
    text: str = ""
    inbox: deque = field(default_factory=deque)
    outbox: deque = field(default_factory=deque)
    frozen: bool = False
    run: int = 0
    epoch: int = 0
    phase: str = "new"
    #: For a consumer: producer -> its task, and producer -> (run, epoch) of its rows.
    known: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)
    sealed: bool = False
    yielded: bool = False
    broken: bool = False
    stopped: bool = False
    #: For a producer: indexes of the consumers that have not taken its rows.
    wanted: set = field(default_factory=set)


class Job:
    """The producer job of an epoch."""

    def __init__(self, run, epoch, partitions):
        self.run, self.epoch = run, epoch
        self.pending = list(range(partitions))
        self.failures = dict.fromkeys(range(partitions), 0)
        self.done = set()
        self.tasks = []
        self.cancelled = False
        self.ended = False


class World:
    """The coordinator, its tasks, and Spark; see the module.

    Args:
        seed: seed of the schedule.
        retries: maximum attempts of Spark and of the coordinator.
        max_faults: maximum number of faults.
    """

    def __init__(self, seed, retries=Retries(4, 4), max_faults=3):  # noqa: B008 - frozen
        self.random = random.Random(seed)
        self.retries = retries
        self.coordinator = Coordinator(retries, Timing())
        self.consumers_count = self.random.randint(1, 3)
        self.producers_count = self.random.randint(0, 4)
        self.slots = self.consumers_count + self.random.randint(1, 3)
        self.coordinator.slots = self.slots
        self.coordinator.exchanges[EXCHANGE] = ExchangeFacts(self.consumers_count)
        self.faults = self.random.randint(0, max_faults)
        self.stops = self.random.random() < 0.1
        self.now = 100.0
        self.numbers = 0
        self.pending = list(range(self.consumers_count))
        self.failures = dict.fromkeys(self.pending, 0)
        self.results = {}
        self.status = "ACTIVE"
        self.tasks = []
        self.jobs = []
        self.events = deque()
        self.log = []
        self.causes = []

    # The enabled steps.

    def steps(self):  # noqa: C901 - one line per kind of step
        """Return the enabled steps, each a name and a call."""
        found = [("tick", self.tick)]
        running = [t for t in self.tasks if t.status == "RUNNING"]
        if len(running) < self.slots:
            if self.pending and self.status == "ACTIVE":
                found.append(("start consumer", self.start_consumer))
            found += [
                ("start producer", lambda j=j: self.start_producer(j))
                for j in self.jobs
                if j.pending and not j.ended
            ]
        for task in self.tasks:
            if task.outbox:
                found.append((f"hear {task.attempt}", lambda t=task: self.hear(t)))
            if task.status != "RUNNING" or task.frozen:
                continue
            if task.inbox:
                found.append((f"tell {task.attempt}", lambda t=task: self.tell(t)))
            found += [(f"work {task.attempt}", call) for call in self.work(task)]
        for consumer in self.coordinator.outcomes.consumers.values():
            task = self.task(consumer.attempt)
            if task.status != "RUNNING":
                found.append(("fate", lambda c=consumer, t=task: self.report_outcome(c, t)))
        if self.events:
            found.append(("event", self.do_event))
        for task in [t for t in running if t.frozen]:
            found.append((f"silence {task.attempt}", lambda t=task: self.silence(t)))
        if self.faults and running and self.random.random() < 0.05:
            found.append(("fault", lambda: self.fault(running)))
        return found

    def play(self, limit=20_000):
        """Run steps until the stage and all runs have ended; raise AssertionError on a hang."""
        for _ in range(limit):
            if self.is_over:
                return
            name, call = self.random.choice(self.steps())
            self.log.append(name)
            call()
            self.settle()
        raise AssertionError(f"no end after {limit} steps: {self.log[-60:]}")

    @property
    def is_over(self):
        """True once the stage, all jobs and all runs have ended and no event is pending."""
        quiet = not self.events and all(j.ended for j in self.jobs)
        return self.status != "ACTIVE" and quiet and not self.coordinator.runs

    # The coordinator's loop.

    def do_event(self):
        self.events.popleft()()

    def tick(self):
        self.now += 0.1
        if self.status == "ACTIVE" or self.coordinator.stages or self.coordinator.runs:
            facts = StageFacts(self.status, self.consumers_count, len(self.results))
            self.coordinator.stage_facts({(EXCHANGE, STAGE): facts})
        self.coordinator.tick(self.now)

    def settle(self):  # noqa: C901 - one row per effect
        for effect in self.coordinator.take_effects():
            match effect:
                case Send(connection=connection, message=message):
                    task = next((t for t in self.tasks if t.connection == connection), None)
                    if task is not None and task.status == "RUNNING":
                        task.inbox.append(message)
                case Submit(run=run):
                    epoch = self.coordinator.runs[run].epoch
                    self.jobs.append(Job(run, epoch, self.producers_count))
                    self.end_if_done(self.jobs[-1])
                case Cancel(run=run, epoch=epoch):
                    for job in self.jobs:
                        if (job.run, job.epoch) == (run, epoch):
                            self.events.append(lambda j=job: self.cancel(j))
                case AskVerdict(member=member):
                    self.events.append(lambda m=member: self.answer(m))
                case Kill(member=member):
                    self.events.append(lambda m=member: self.kill(m.attempt))
                case EpochEnded(cause=cause):
                    self.causes.append(cause)

    # Spark.

    def start_consumer(self):
        index = self.pending.pop(0)
        self.new_task(index, None, "CONSUMER", {"index": index})

    def start_producer(self, job):
        partition = job.pending.pop(0)
        task = self.new_task(partition, job, "PRODUCER", {})
        job.tasks.append(task)

    def new_task(self, number, job, kind, more):
        self.numbers += 1
        stage = STAGE if job is None else 100 + self.jobs.index(job)
        task = Task(number, self.numbers, job, connection=self.numbers)
        if job is not None:
            task.run, task.epoch = job.run, job.epoch
        self.tasks.append(task)
        fields = {"stage": stage, "partition": number, "attempt": task.attempt, **more}
        self.say(task, kind, fields)
        return task

    def end(self, task, status, text=""):
        """End a task. Its sent messages may still arrive before its connection closes."""
        if task.status != "RUNNING":
            return
        task.status, task.text = status, text
        task.inbox.clear()
        task.outbox.append(None)
        counts = status == "FAILED"
        if task.job is None:
            if status == "SUCCESS":
                self.results[task.number] = task
            elif self.status == "ACTIVE":
                self.failures[task.number] += counts
                if self.failures[task.number] >= self.retries.tasks:
                    self.give_up()
                else:
                    self.pending.append(task.number)
        elif not task.job.ended:
            job = task.job
            if status == "SUCCESS":
                job.done.add(task.number)
            else:
                job.failures[task.number] += counts
                if job.failures[task.number] >= self.retries.tasks:
                    self.end_job(job, Cause("HG-3001", "a producer is gone", text=text))
                else:
                    job.pending.append(task.number)
            self.end_if_done(job)
        if task.job is None and len(self.results) == self.consumers_count:
            self.status = "COMPLETE"

    def give_up(self):
        self.status = "FAILED"
        for task in self.tasks:
            if task.job is None:
                self.end(task, "KILLED")

    def end_if_done(self, job):
        if not job.ended and len(job.done) == self.producers_count:
            self.end_job(job, None)

    def end_job(self, job, error):
        job.ended = True
        number, epoch, done = job.run, job.epoch, set(job.done)
        self.events.append(lambda: self.coordinator.job_ended(number, epoch, error, done))
        for task in job.tasks:
            self.end(task, "KILLED")

    def cancel(self, job):
        if not job.ended:
            self.end_job(job, CANCELLED)

    def kill(self, attempt):
        for task in self.tasks:
            if task.attempt == attempt:
                self.end(task, "KILLED")

    def task(self, attempt):
        return next(t for t in self.tasks if t.attempt == attempt)

    def report_outcome(self, consumer, task):
        self.coordinator.task_ended(consumer, task.status, task.text, self.now)

    def answer(self, member):
        task = self.task(member.attempt)
        self.coordinator.verdict(member, task.status, task.text)

    # Faults.

    def fault(self, running):
        kind = self.random.choice(FAULTS)
        consumers = [t for t in running if t.job is None]
        victims = (
            consumers if "consumer" in kind or kind == "cut" else [t for t in running if t.job]
        )
        if not victims:
            return
        self.faults -= 1
        task = self.random.choice(victims)
        self.log.append(f"{kind} {task.attempt}")
        if kind.startswith("kill"):
            self.end(task, "FAILED", GONE)
        elif kind.startswith("freeze"):
            task.frozen = True
        elif task.phase == "started" and not task.broken:
            task.broken = True
            self.say(task, "FAILED", Cause("HG-3005", "a page is damaged").fields())

    def silence(self, task):
        if task.status == "RUNNING":
            self.coordinator.silent(task.connection, "host", 10.0)

    # Messages.

    def say(self, task, kind, fields=None):
        task.outbox.append(Message(kind, task.run, task.epoch, fields or {}))

    def hear(self, task):
        message = task.outbox.popleft()
        if message is None:
            self.coordinator.closed(task.connection)
        elif (
            message.kind in {"CONSUMER", "PRODUCER"} or task.connection in self.coordinator.members
        ):
            self.coordinator.message(task.connection, EXCHANGE, message, self.now)

    def tell(self, task):
        say = self.tell_consumer if task.job is None else self.tell_producer
        say(task, task.inbox.popleft())

    def tell_consumer(self, task, message):
        match message.kind:
            case "START":
                task.run, task.epoch, task.phase = message.run, message.epoch, "started"
                task.known, task.rows, task.sealed = {}, {}, False
                task.broken = False
            case "PARTITION":
                assert (message.run, message.epoch) == (task.run, task.epoch)
                owner = self.task(message["attempt"])
                assert owner.epoch == task.epoch, "a producer of another epoch"
                task.known[message["producer"]] = owner
            case "SEALED":
                assert message["producers"] == len(task.known)
                task.sealed = True
            case "EPOCH_ENDED":
                assert task.phase == "started"
                task.phase = "over"
                self.say(task, "YIELDED" if task.yielded else "READY")
            case "ABORT":
                self.end(task, "FAILED", f"[{message['code']}] {message['summary']}")
            case "OK":
                self.end(task, "SUCCESS")

    def tell_producer(self, task, message):
        match message.kind:
            case "GO":
                task.wanted, task.phase = set(message["wanted"]), "going"
            case "CONSUMER_GONE":
                task.wanted.discard(message["index"])
            case "FINISH" if task.phase != "said":
                task.phase = "said"
                self.say(task, "STOPPED", TOTALS)
                self.end(task, "SUCCESS")
            case "ABORT" | "EPOCH_ENDED":
                if message.kind == "EPOCH_ENDED":
                    self.say(task, "READY")
                self.end(task, "FAILED", f"[{message['code']}] {message['summary']}")
            case "OK":
                self.end(task, "SUCCESS")

    # Steps of tasks.

    def work(self, task):
        """Return the steps that a task can take now."""
        if task.job is not None:
            if task.phase == "going":
                return [lambda: self.register(task)]
            done = task.phase == "registered" and not task.wanted
            return [lambda: self.say_done(task)] if done else []
        if task.phase != "started" or task.broken:
            return []
        calls = [
            lambda p=p, o=o: self.take(task, p, o)
            for p, o in task.known.items()
            if p not in task.rows
        ]
        if task.rows and not task.yielded:
            calls.append(lambda: setattr(task, "yielded", True))
        if task.sealed and len(task.rows) == len(task.known):
            calls = [lambda: self.say_done(task)]
        elif self.stops:
            calls.append(lambda: self.stop(task))
        return calls

    def register(self, task):
        task.phase = "registered"
        place = {"host": "h", "port": 9, "partition_id": "aa" * 16, "process_id": "bb" * 16}
        self.say(task, "REGISTERED", place)

    def say_done(self, task):
        task.phase = "said"
        self.say(task, "DONE", TOTALS)

    def take(self, task, partition, owner):
        if owner.status == "RUNNING" and not owner.frozen and owner.phase == "registered":
            owner.wanted.discard(task.number)
            task.rows[partition] = (owner.run, owner.epoch)
        elif owner.status in {"FAILED", "KILLED"}:
            task.broken = True
            self.say(task, "FAILED", Cause("HG-3001", "a peer is gone").fields())

    def stop(self, task):
        """Stop a consumer early, as a LIMIT does."""
        task.phase, task.stopped = "said", True
        self.say(task, "STOPPED", TOTALS)
        self.end(task, "SUCCESS")
