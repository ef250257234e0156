"""The plan of one run, drawn from its seed: the job, the fault, the victim, the moment."""

import random
from dataclasses import asdict, dataclass, replace

#: Kind of each of twenty consecutive runs, so that any count of runs has a share of each kind. The
#: first dozen has all of them.
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
#: Seconds of the pause of a process.
PAUSE = 5.0
KEYS = 97
SLOTS = 6

#: Control messages that can be the moment of the fault, by victim.
_MESSAGES = {
    "consumer": ("CONSUMER", "START", "PARTITION", "SEALED", "PROGRESS", "DONE"),
    "producer": ("PRODUCER", "GO", "REGISTERED", "PARTITION", "PROGRESS", "DONE"),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of the fault.

    Attributes:
        kind: ``time`` (``at`` ms after the start of the action), ``message`` (the ``at``-th message
            ``name`` reaches or leaves the coordinator) or ``rows`` (a task of the role ``name`` has
            processed ``at`` rows).
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
    """The plan of one run.

    Attributes:
        seed: seed from which all other attributes are drawn.
        consumers: number of partitions of the result.
        producers: number of partitions of the input. If they exceed the slots, they run in waves.
        batches: batches per producer.
        batch_rows: rows per batch.
        pace_ms: ms that a producer waits before each batch.
        width: repetitions of the id in the payload.
        reduce: ``none``; ``early``, which yields each batch at once; ``late``, after the last one.
        drag_ms: ms that a consumer waits before each batch.
        shuffle: True if a shuffle by Spark follows.
        kind: kind of the fault.
        victim: ``producer``, ``consumer``, ``executor``, or ``daemon``: the process that is hit, or
            whose connection is.
        which: position of the victim among all possible ones, as a fraction.
        moment: moment of the fault.
        manner: for a cut, ``end`` or ``reset``; for a flip, ``up`` (to the producer or the driver)
            or ``down``.
        bit: number of the flipped bit.
        skip: bytes that pass between the moment and the flip.
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
    kind: str
    victim: str
    which: float
    moment: Moment
    manner: str
    bit: int
    skip: int

    @property
    def rows(self):
        """Number of rows of the job."""
        return self.producers * self.batches * self.batch_rows

    @property
    def job(self):
        """Description of the job."""
        more = [f"reduce {self.reduce}"] if self.reduce != "none" else []
        more += ["then a shuffle"] if self.shuffle else []
        return " ".join(
            [f"{self.producers}x{self.batches}x{self.batch_rows} rows -> {self.consumers}", *more]
        )

    @property
    def fault(self):
        """Description of the fault."""
        if self.kind == "none":
            return "no fault"
        where = "" if self.victim in self.kind else f" of a {self.victim}"
        manner = f" ({self.manner})" if self.manner else ""
        return f"{self.kind}{where}{manner}, {self.moment}"

    def at_once(self):
        """Return the same plan with the fault as soon as there is a victim."""
        name = "CONSUMER" if self.victim == "consumer" else "PRODUCER"
        return replace(self, moment=Moment("message", 1, name), skip=min(self.skip, 64))

    def fields(self):
        """Return the plan as values that JSON can hold."""
        return asdict(self)


def make_plan(seed, kind=None):
    """Return the plan of a seed, with a fault of this kind if one is given (``none``: no fault)."""
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
            # Daemons are never stopped: Spark waits forever for a stopped one, with any job.
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
