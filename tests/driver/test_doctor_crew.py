"""The exchange between pairs of executors, without Spark: its tasks run in threads, or are played by the test."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import errors
from headgate._option_table import TASK_OPTIONS
from headgate._options import resolve
from headgate.control.connection import WorkerConnection
from headgate.control.messages import Codec, Message
from headgate.spark.doctor import crew as crew_module
from headgate.spark.doctor import peer
from headgate.spark.doctor.crew import Connections, Invited, examine
from headgate.spark.doctor.wire import ANSWERS, CODEC

SCHEMA = pa.schema([("value", pa.int64())])
SIZE = 3 << 20
#: Seconds that no test needs, also on a machine that is busy.
LONG = 300.0


@contextmanager
def listening(*, tls=False, **options):
    """Yield the doctor's connections, and end all threads of its tasks."""
    with Connections("127.0.0.1", "127.0.0.1", LONG, tls=tls, **options) as made:
        made.threads = []
        yield made
    for thread in made.threads:
        thread.join()


def start(made, body):
    thread = threading.Thread(target=body, name="task of the test")
    made.threads.append(thread)
    thread.start()


def task(made, number, **options):
    """Start a task of the doctor."""
    parsed = resolve("exchange", options)
    given = {name: parsed[name] for name in TASK_OPTIONS}
    start(made, lambda: list(peer.run(peer.PeerTask(made.address, given, SCHEMA), [number])))


def actor(made, number, answer, **here):
    """Start a task that says where it is, and answers by a function of the message."""
    address = {"host": "127.0.0.1", "port": 1, "process": "00" * 16, "executor": ""}
    here = {"number": number, **address, **here}

    def play():
        connection = WorkerConnection(made.address, Careless(CODEC.table, CODEC.max_message))
        with contextlib.closing(connection.sock), contextlib.suppress(errors.CoordinatorError):
            connection.send(Message("HERE", here))
            while True:
                for question in connection.receive():
                    fields = answer(question)
                    if fields is not None:
                        connection.send(Message(ANSWERS[question.kind], fields))

    start(made, play)


def polite(message):
    """Answer as a task does that has found nothing wrong."""
    exchanged = {"rate": 1.0, "link": "tcp", "error": "", "code": "", "trace": ["opened"]}
    dialed = {"errors": [], "at": time.time(), "took": 0.0}
    return dialed if message.kind == "DIAL" else exchanged


def invited(number, failed=None, **changes):
    names = {n: f"executor {n}" for n in range(number)}
    by_id = {str(n): name for n, name in names.items()}
    given = {"names": names, "by_id": by_id, "is_alone": False, "failed": lambda: failed or {}}
    return Invited(**{**given, **changes})


def examined(made, guests, seconds=LONG):
    return examine(made, guests, SIZE, time.monotonic() + seconds)


class Careless(Codec):
    """Sends what does not fit its row."""

    def _check(self, kind, fields):
        pass


class StopSoon(BaseException):
    """As Ctrl-C is, an exception that nothing catches."""


@pytest.mark.parametrize("options", [{}, {"same_host_link": "off", "tls": "require"}])
def test_each_reads_from_each(options):
    with listening(tls=options.get("tls") == "require") as made:
        for number in range(3):
            task(made, number, **options)
        crew, clocks = examined(made, invited(3))
    assert sorted(crew.joined) == ["executor 0", "executor 1", "executor 2"]
    assert len({*crew.joined.values()}) == 3
    assert {(p.writer, p.reader) for p in crew.pairs} == {
        (a, b) for a in crew.joined for b in crew.joined if a != b
    }
    assert all(pair.rate and not pair.error for pair in crew.pairs), crew.pairs
    assert {pair.link for pair in crew.pairs} == {"same_host" if not options else "tcp"}
    for offset, unsure in clocks.values():
        assert abs(offset) <= unsure + 1e-3
    assert not crew.errors
    assert not crew.busy


def test_two_processes_of_the_only_executor():
    with listening() as made:
        task(made, 0)
        task(made, 1)
        crew, _ = examined(made, invited(2, is_alone=True))
    assert crew.is_alone
    assert len(crew.pairs) == 2
    assert all(pair.rate for pair in crew.pairs)


def test_a_task_that_failed_is_not_awaited():
    with listening() as made:
        task(made, 0)
        task(made, 2)
        crew, _ = examined(made, invited(3, failed={1: "OSError: no route to host"}))
    assert crew.errors == {"executor 1": "OSError: no route to host"}
    assert set(crew.joined) == {"executor 0", "executor 2"}
    assert [bool(pair.rate) for pair in crew.pairs] == [True, True]


def test_a_task_that_never_comes_does_not_hold_up_the_others():
    with listening() as made:
        actor(made, 0, polite)
        actor(made, 1, polite)
        crew, _ = examined(made, invited(3), seconds=9)
    assert set(crew.invited) - set(crew.joined) == {"executor 2"}
    assert [pair.rate for pair in crew.pairs] == [1.0, 1.0]


def test_an_executor_whose_task_spark_started_elsewhere_is_busy():
    with listening() as made:
        actor(made, 0, polite, executor="0")
        actor(made, 1, polite, executor="0")
        crew, _ = examined(made, invited(2))
    assert crew.busy == ("executor 1",)
    assert set(crew.joined) == {"executor 0"}
    assert list(crew.pairs) == []


def test_an_address_that_refuses_is_named(monkeypatch):
    monkeypatch.setattr(crew_module, "_ROUND", 1.0)  # the played task reads nothing
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with listening() as made:
        task(made, 0)
        actor(made, 1, polite, port=port)
        crew, _ = examined(made, invited(2))
    (refused,) = [pair for pair in crew.pairs if pair.error]
    assert (refused.writer, refused.reader, refused.code) == ("executor 1", "executor 0", "HG-3007")
    assert refused.error == f"127.0.0.1:{port}: Connection refused"


def test_a_member_that_stops_answering_is_lost_and_the_others_are_measured(monkeypatch):
    monkeypatch.setattr(crew_module, "_ANSWER", 0.5)
    monkeypatch.setattr(crew_module, "_LATE", 0.5)
    with listening() as made:
        actor(made, 0, polite)
        actor(made, 1, lambda _: None)
        actor(made, 2, polite)
        crew, _ = examined(made, invited(3))
    found = {(pair.writer[-1], pair.reader[-1]): pair for pair in crew.pairs}
    assert {pair for pair, one in found.items() if one.code == "HG-3001"} == {
        ("0", "1"), ("1", "0"), ("1", "2"), ("2", "1"),
    }  # fmt: skip
    assert found["0", "2"].rate == found["2", "0"].rate == 1.0


def test_pairs_without_time_are_not_measured_and_not_blamed():
    with listening() as made:
        actor(made, 0, polite)
        actor(made, 1, polite)
        crew, _ = examined(made, invited(2), seconds=crew_module._LATE)
    assert [(pair.rate, pair.error) for pair in crew.pairs] == [(None, "")] * 2


def test_a_reader_whose_writer_is_stopped_gives_up_in_time():
    answers = []

    def ask(message):
        answers.append(message)
        return polite(message)

    with listening() as made:
        task(made, 0)
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
            actor(made, 1, ask, port=silent.getsockname()[1])
            crew, _ = examined(made, invited(2), seconds=crew_module._LATE + 3)
    (unread,) = [pair for pair in crew.pairs if pair.reader == "executor 0"]
    assert unread.rate is None
    assert [message.kind for message in answers] == ["DIAL", "EXCHANGE"]


def test_an_interrupt_ends_all_tasks():
    def interrupt(message):
        if message.kind == "DIAL":
            stop.set()
        return polite(message)

    stop = threading.Event()

    with contextlib.suppress(StopSoon), listening() as made:
        task(made, 0)
        actor(made, 1, interrupt)
        arrived = made.next

        def interrupted(seconds):
            if stop.is_set():
                raise StopSoon
            return arrived(seconds)

        made.next = interrupted
        examined(made, invited(2))
    for thread in made.threads:
        thread.join()
    assert stop.is_set()


#: Fields of an answer that fit its row, and some that do not.
RATES = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=3))
ERRORS = st.lists(st.tuples(st.integers(-1, 3), st.text(max_size=3)), max_size=3)


@settings(max_examples=10, deadline=None)
@given(RATES, RATES, ERRORS, st.text(max_size=3))
def test_any_answers_of_a_member_give_pairs(at, rate, refused, word):
    fields = {
        "DIAL": {"errors": refused, "at": at, "took": 0.0},
        "EXCHANGE": {"rate": rate, "link": word, "error": word, "code": word, "trace": [word]},
    }
    with listening() as made:
        actor(made, 0, lambda question: fields[question.kind], executor=word)
        actor(made, 1, polite)
        crew, _ = examined(made, invited(2, by_id={}))
    assert {(pair.writer, pair.reader) for pair in crew.pairs} <= {
        ("executor 0", "executor 1"), ("executor 1", "executor 0"),
    }  # fmt: skip
