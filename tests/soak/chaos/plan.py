"""What one run does, all of it from its seed: the job, the fault, the victim, the moment."""

import random
from dataclasses import asdict, dataclass, replace

#: One for every twentieth of the runs, so that each kind has its share whatever the count is. The
#: first dozen have all of them.
KINDS = (
    "kill producer",
    "cut data",
    "kill consumer",
    "flip data",
    "pause",
    "kill executor",
    "stop",
    "cut control",
    "kill daemon",
    "flip control",
    "kill consumer",
    "flip data",
    "kill producer",
    "cut data",
    "pause",
    "kill executor",
    "kill consumer",
    "flip data",
    "kill daemon",
    "kill producer",
)
#: Seconds that a paused process is stopped for.
PAUSE = 5.0
KEYS = 97
SLOTS = 6

#: Messages of the control connections whose passing can be the moment, by who the victim is.
_MESSAGES = {
    "consumer": ("CONSUMER", "START", "PARTITION", "SEALED", "PROGRESS", "DONE"),
    "producer": ("PRODUCER", "GO", "REGISTERED", "PARTITION", "PROGRESS", "DONE"),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """When the fault happens.

    Attributes:
        kind: ``time`` (``at`` ms after the action began), ``message`` (the ``at``-th message
            ``name`` passes the coordinator) or ``rows`` (``at`` rows are through a task of the role
            ``name``).
        at: see ``kind``.
        name: see ``kind``.
    """

    kind: str
    at: int
    name: str = ""

    def __str__(self):
        match self.kind:
            case "time":
                return f"at {self.at} ms"
            case "message":
                return f"{self.name} {self.at}"
            case _:
                return f"{self.at} rows in a {self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Attributes:
        seed: it comes from this alone.
        consumers: partitions of the result.
        producers: partitions of the input; in waves where they are more than the slots.
        batches: of each producer.
        batch_rows: of each batch.
        pace_ms: that a producer waits before each batch.
        width: how often the id is repeated in the payload.
        reduce: ``none``; ``early``, which yields each batch as it comes; ``late``, after the last.
        drag_ms: that a consumer waits before each batch.
        shuffle: whether a shuffle of Spark's own follows.
        hand_over: whether a consumer may serve another one's rows when slots are short.
        kind: of the fault.
        victim: ``producer``, ``consumer``, ``executor``, or ``daemon``; a process, or whose
            connection.
        which: of the victims there are, as a fraction.
        moment: when.
        manner: of a cut, ``end`` or ``reset``; of a flip, ``up`` (to the producer or the driver)
            or ``down``.
        bit: which one, of a flip.
        skip: how many bytes pass before it, after the moment.
    """

    seed: int
    consumers: int
    producers: int
    batches: int
    batch_rows: int
    pace_ms: int
    width: int
    reduce: str
    drag_ms: int
    shuffle: bool
    hand_over: bool
    kind: str
    victim: str
    which: float
    moment: Moment
    manner: str
    bit: int
    skip: int

    @property
    def rows(self):
        """All rows of the job."""
        return self.producers * self.batches * self.batch_rows

    @property
    def job(self):
        """The job in words."""
        more = [f"reduce {self.reduce}"] if self.reduce != "none" else []
        more += ["then a shuffle"] if self.shuffle else []
        return " ".join(
            [f"{self.producers}x{self.batches}x{self.batch_rows} rows -> {self.consumers}", *more]
        )

    @property
    def fault(self):
        """The fault in words."""
        if self.kind == "none":
            return "no fault"
        where = "" if self.victim in self.kind else f" of a {self.victim}"
        manner = f" ({self.manner})" if self.manner else ""
        return f"{self.kind}{where}{manner}, {self.moment}"

    def at_once(self):
        """Return the same run with its fault as soon as there is a victim."""
        name = "CONSUMER" if self.victim == "consumer" else "PRODUCER"
        return replace(self, moment=Moment("message", 1, name), skip=min(self.skip, 64))

    def fields(self):
        """Return it as JSON takes it."""
        return asdict(self)


def make_plan(seed, kind=None):
    """Return the run of a seed; ``kind`` is asked for, or ``none`` for a run without a fault."""
    choose = random.Random(seed)
    kind = kind or KINDS[seed % len(KINDS)]
    consumers = choose.choice((2, 2, 3))
    producers = choose.choice((2, 3, 4, 4, 5, 8))
    batches = choose.randint(8, 40)
    waves = -(-producers // (SLOTS - consumers))
    flow_ms = choose.uniform(600, 1600)
    victim = _victim(kind, choose)
    plan = Plan(
        seed=seed,
        consumers=consumers,
        producers=producers,
        batches=batches,
        batch_rows=choose.choice((50, 200, 500, 1000)),
        pace_ms=round(flow_ms / waves / batches),
        width=choose.choice((1, 4, 20)),
        reduce=choose.choice(("none", "early", "late")),
        drag_ms=choose.choice((0, 0, 0, 5)),
        shuffle=choose.random() < 0.3,
        hand_over=choose.random() < 0.5,
        kind=kind,
        victim=victim,
        which=choose.random(),
        moment=Moment("time", 0),
        manner=_manner(kind, choose),
        bit=choose.randrange(8),
        skip=choose.choice((0, 0, choose.randrange(64), choose.randrange(20_000))),
    )
    return replace(plan, moment=_moment(plan, choose))


def _victim(kind, choose):
    action, _, name = kind.partition(" ")
    match action:
        case "kill":
            return name
        case "pause":
            return choose.choice(("producer", "consumer", "daemon", "executor"))
        case "stop":
            # A stopped daemon is left out: Spark itself waits for it for ever, with or without us.
            return choose.choice(("producer", "producer", "consumer", "consumer", "executor"))
        case _:
            return choose.choice(("producer", "consumer"))


def _manner(kind, choose):
    match kind.partition(" ")[0]:
        case "cut":
            return choose.choice(("end", "reset"))
        case "flip":
            return choose.choice(("up", "down", "down"))
        case _:
            return ""


def _moment(plan, choose):
    role = plan.victim if plan.victim in _MESSAGES else choose.choice(("producer", "consumer"))
    kind = choose.choice(("time", "message", "rows"))
    if kind == "time":
        return Moment(kind, choose.randint(0, 2500))
    if kind == "rows":
        total = plan.rows // (plan.consumers if role == "consumer" else plan.producers)
        return Moment(kind, choose.randint(1, max(1, int(total * 0.9))), role)
    name = choose.choice(_MESSAGES[role])
    most = plan.consumers if name in {"CONSUMER", "START", "SEALED"} else plan.producers
    return Moment(kind, choose.randint(1, most), name)
