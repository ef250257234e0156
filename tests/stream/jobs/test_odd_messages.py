"""Messages that no worker should send: each costs at most that worker, and never ends the job."""

import contextlib
import json
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import stream_jobs

from headgate import errors
from headgate.control.cause import LIMITS
from headgate.control.messages import Message
from headgate.observe.record import Worker
from headgate.sink import FunctionSink
from headgate.stream.job.checkpoints import CheckpointConfig
from headgate.stream.job.config import JobConfig
from headgate.stream.job.master import JobMaster
from headgate.stream.job.messages import CODEC
from headgate.stream.job.pool import Endpoint
from headgate.stream.job.status import JobState
from headgate.stream.job.store import CheckpointStore

GRAPH = (
    stream_jobs.numbers(10).key_by("key").map(stream_jobs.same).sink(FunctionSink(print)).plan(2)
)
#: Tasks are placed on two workers in turn.
PLACED = {task: at % 2 for at, task in enumerate(GRAPH.tasks)}
OWN = [list(task) for task, worker in PLACED.items() if worker == 0]
OTHERS = [list(task) for task, worker in PLACED.items() if worker == 1]
IDENTITY = "0" * 32


class Pool:
    """Two workers that the test plays."""

    size, endpoint = 2, Endpoint()

    def start(self, number, place):
        pass

    def ended(self):
        return {}

    def end_of(self, number):
        return ""

    def stop(self):
        pass


class Peer:
    """A connection of a worker."""

    def __init__(self, registry):
        self.registry, self.sent, self.error = registry, [], None

    def send(self, kind, **fields):
        self.sent.append(Message(kind, fields))

    def fail(self, error):
        self.error = error
        self.drop()

    def close(self):
        self.drop()

    def drop(self):
        self.registry.on_lost(self, self.error)


@contextlib.contextmanager
def running():
    """Yield the coordinator of a job whose tasks are deployed and connected."""
    config = JobConfig("odd", CheckpointConfig(None), restarts=10**6)
    with tempfile.TemporaryDirectory() as folder:
        master = JobMaster(GRAPH, config, CheckpointStore(folder), Pool())
        registry = master._workers
        for number in range(2):
            peer = Peer(registry)
            registry._peers[number], registry._numbers[peer] = peer, number
            registry._statuses[number] = Worker(number, "here", 1)
        try:
            master._deploy(None)
            for number in range(2):
                say(master, number, "DEPLOYED", deployed(number))
            assert master.state is JobState.RUNNING
            yield master
        finally:
            master.attempt.sources.close()
            master._loop.close()
            master._checkpointing.close()


def deployed(number):
    own = [task for task, worker in PLACED.items() if worker == number]
    partitions = [[*task, [IDENTITY] * len(GRAPH.stages[task[0]].edges)] for task in own]
    return {"partitions": partitions, "host": "here", "port": 1, "process": IDENTITY}


def say(master, worker, kind, fields):
    """Let a worker say something, as bytes; what is no message ends its connection."""
    peer = master._workers._peers[worker]
    try:
        message = CODEC.decode(json.dumps({"kind": kind, "attempt": 1, **fields}).encode())
        master._workers.on_message(peer, message)
    except Exception as error:  # noqa: BLE001 - as the server does
        peer.fail(error)
    return peer


task = st.sampled_from([*OWN, *OTHERS, [0, 9], [7, 0], [-1, -1], [0], "x", None])
number = st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, 2**63, -(2**63), True, None]))
text = st.sampled_from(["", "here", "AAAA", "=", IDENTITY, "\x00", "é" * 9])
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), number, text, st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3), task
    ),
    max_leaves=8,
)
operator = st.fixed_dictionaries(
    {},
    optional={
        "state": st.one_of(st.tuples(text, number), junk),
        "committables": st.lists(st.tuples(number, text), max_size=2),
    },
)
NUMBERS = ("in_flight", "bytes", "sync", "start_delay", "async", "alignment")
state = st.fixed_dictionaries(
    {
        "operators": st.dictionaries(
            st.sampled_from([node.uid for stage in GRAPH.stages for node in stage.operators]),
            operator,
            max_size=2,
        ),
        "channels": st.one_of(st.none(), junk),
        **{name: st.sampled_from([0, 5, -1]) for name in NUMBERS},
    },
    optional={"splits": st.one_of(st.tuples(number, st.lists(st.tuples(text, text))), junk)},
)
figures = st.fixed_dictionaries(
    {
        "task": task,
        "watermark": st.none(),
        **dict.fromkeys(("elapsed_ms", "rows", "batches", "busy_ms", "blocked_ms"), number),
    }
)
LIKELY = {
    "attempt": st.just(1),
    "task": task,
    "checkpoint": st.integers(0, 2),
    "worker": st.integers(-1, 3),
    "host": text,
    "port": number,
    "state": state,
    "tasks": st.lists(figures, max_size=2),
    "cause": st.fixed_dictionaries(dict.fromkeys(LIMITS, text)),
    "partitions": st.just(deployed(0)["partitions"]),
    "process": st.just(IDENTITY),
    "payload": text,
    "ids": st.lists(text, max_size=2),
    "ms": number,
    "peak_resident_bytes": number,
    "lock_wait_us": number,
    "memory_group": st.none()
    | st.fixed_dictionaries(
        {
            **dict.fromkeys(("host", "folder"), text),
            **dict.fromkeys(("device", "inode", "kills", "limit"), number),
        }
    ),
}


@st.composite
def messages(draw):
    kind = draw(st.sampled_from(sorted(CODEC.table)))
    names = draw(st.sampled_from([sorted(CODEC.table[kind])] * 9 + [["attempt", "task"], []]))
    return kind, {
        name: draw(st.one_of(LIKELY.get(name, text), LIKELY.get(name, text), junk))
        for name in names
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=4))
def test_random_messages_never_end_the_job(said):
    with running() as master:
        may_end = {tuple(f["task"]) for kind, f in said if kind == "ENDED" and f.get("task") in OWN}
        attempt = master.attempt
        for kind, fields in said:
            if 0 in master._workers._peers:
                say(master, 0, kind, fields)
        assert master.failure is None
        assert master.state in {JobState.RUNNING, JobState.RESTARTING}
        assert attempt.ended <= may_end
        assert attempt.finished == set()
        if not any(kind == "FAILED" for kind, _ in said):
            assert {ended.error for ended in master.ended_attempts} <= {"HG-3001"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ENDED", {"task": OTHERS[0]}),
        ("ENDED", {"task": [0, 9]}),
        ("FINISHED", {"task": OWN[0]}),
        ("DEPLOYED", deployed(0)),
        ("SPLIT_REQUEST", {"task": [1, 0], "host": "here"}),
        ("TRIGGER", {}),
        ("COMPLETE", {"checkpoint": 1, "savepoint": False}),
        ("DECLINED", {"task": OTHERS[0], "checkpoint": 1, "reason": "because"}),
        ("FAILED", {"cause": {"code": "HG-9001"}}),
    ],
)
def test_an_odd_message_costs_its_worker(kind, fields):
    with running() as master:
        peer = say(master, 0, kind, fields)
        assert isinstance(peer.error, errors.ProtocolError)
        assert set(master._workers._peers) == {1}
        assert master.state is JobState.RESTARTING
        (ended,) = master.ended_attempts
        assert ended.error == "HG-3001"


def test_an_error_in_a_handler_costs_the_worker_whose_message_it_was(monkeypatch):
    with running() as master:
        monkeypatch.setattr(master.attempt.sources, "handle", lambda _: 1 / 0)
        peer = say(master, 0, "WATERMARK", {"task": OWN[0], "ms": 5})
        assert isinstance(peer.error, ZeroDivisionError)
        assert master.state is JobState.RESTARTING
        assert master.failure is None
