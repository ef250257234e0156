"""The kinds of faults, how often each is drawn, and where it can strike."""

#: Seconds in which an armed point has to be reached; else the fault is taken back and does not count.
ARMED = 0.6
#: The same for a job on Spark, whose workers may wait for a new executor.
ARMED_ON_SPARK = 6.0
#: How often each kind of fault is drawn.
KINDS = {
    "point of a worker": 40,
    "point of the driver": 30,
    "point of a function": 12,
    "kill a worker": 10,
    "stop a worker": 5,
    "cut a control connection": 6,
    "cut data connections": 8,
    "full disk": 6,
    "unwritable folder": 4,
    "kill the driver": 6,
    "stop the driver": 3,
    "second driver": 3,
    "savepoint": 6,
    "stop with a savepoint": 4,
    "stop": 3,
    "cancel": 3,
}
#: The same for jobs on Spark, whose drivers take seconds to start.
KINDS_ON_SPARK = {
    "kill an executor": 30,
    "point of a worker": 30,
    "point of the driver": 12,
    "point of a function": 12,
    "cut a control connection": 6,
    "cut data connections": 8,
    "kill the driver": 3,
    "stop with a savepoint": 2,
}
#: The same for jobs whose tasks never start anew, whatever the guarantee.
KINDS_WITHOUT_RESTART = {
    "pause at a point": 12,
    "stop a worker": 6,
    "stop the driver": 3,
    "savepoint": 3,
}
#: The same for jobs that call a service. A disk that takes no results makes them be called again.
KINDS_OF_CALLS = {
    "point of a worker": 20,
    "point of the driver": 10,
    "point of a function": 12,
    "kill a worker": 20,
    "stop a worker": 6,
    "cut a control connection": 6,
    "cut data connections": 6,
    "kill the driver": 10,
    "stop the driver": 3,
    "outage of the service": 10,
    "kill the service": 8,
    "stop the service": 5,
    "savepoint": 3,
    "stop": 4,
    "cancel": 4,
}
OF_WORKERS = (
    "barrier",
    "snapshot file",
    "snapshot",
    "prepare",
    "retention",
    "discard",
    "read state",
    "deploy",
    "connect",
)
OF_DRIVER = ("log", "commit", "restore", "enumerator", "assignment", "delete")
FUNCTIONS = ("map", "process", "timers", "visible")
#: The ways in which barriers treat rows before them.
ALIGNMENTS = (
    {},
    {"alignment": "unaligned"},
    {"alignment": "timeoutable", "aligned_timeout": 0.01},
)
#: The same if they are only counted, in jobs without a restart, and in others.
COUNTED_ONLY = ({"alignment": "at_least_once"},)
MIXED = (*ALIGNMENTS, *COUNTED_ONLY * 6)
