"""A bug of the coordinator ends the exchange that it is about, with a clear error; the others go on."""

import errno
import itertools
import logging
import os
import socket
import time
from pathlib import Path

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre, started
from tests.driver.test_server import SECRET, Side
from tests.faults.patience import wait_until

from headgate.control.place import Place
from headgate.errors import CoordinatorError, InternalError
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.formation import ExchangeFacts
from headgate.spark.driver.runs.members import Send
from headgate.spark.driver.server import Server
from headgate.spark.driver.timing import Timing
from headgate.spark.tasks.control import Control
from headgate.spark.wire.channel import CoordinatorLink, WorkerLink, control_key
from headgate.spark.wire.messages import Message


def explode(*_, **__):
    raise ZeroDivisionError("a bug")


@pytest.fixture
def theatre():
    return Theatre(slots=50)


def goes_on(theatre):
    """Assert that a run of the other exchange goes well."""
    theatre.stage(9, 1)
    consumer = theatre.consumer(0, stage=9, exchange=OTHER)
    run = theatre.submitted[-1]
    assert run.exchange_id == OTHER
    producer = theatre.producer(run, 0, OTHER)
    theatre.say(producer, "REGISTERED", PLACE, run.number, OTHER)
    theatre.done(producer, run.number, OTHER)
    theatre.job_ended(run, [0])
    theatre.done(consumer, run.number, OTHER)
    assert (run, None) in theatre.ended
    assert [exchange for exchange, _ in theatre.broken] == [EXCHANGE]


def ended_by_the_bug(theatre, run):
    ((ended, cause),) = theatre.ended
    assert ended is run
    assert cause.code == "HG-9001"
    assert "the coordinator failed at" in cause.summary
    assert "ZeroDivisionError: a bug" in cause.summary
    assert "in explode" in cause.text


def test_in_a_message(theatre):
    consumers, run, _ = started(theatre)
    late = theatre.producer(run, 1)
    run.producer_registered = explode
    with pytest.raises(InternalError, match="failed at a REGISTERED message"):
        theatre.say(late, "REGISTERED", PLACE, run.number)
    theatre.hang_up(late)
    ended_by_the_bug(theatre, run)
    assert [theatre.last(consumer).kind for consumer in consumers] == ["ABORT", "ABORT"]
    goes_on(theatre)


def test_in_the_turn_of_a_run(theatre):
    _, run, _ = started(theatre)
    run.epochs.tick = explode
    theatre.wait(0.1)
    del run.epochs.tick
    ended_by_the_bug(theatre, run)
    goes_on(theatre)


def test_in_the_forming_of_a_run(theatre):
    consumer = theatre.consumer(0)
    make = theatre.coordinator.formation._new_run

    def new_run(exchange, *about):
        return explode() if exchange == EXCHANGE else make(exchange, *about)

    theatre.coordinator.formation._new_run = new_run
    theatre.wait(1.1)
    assert theatre.last(consumer)["code"] == "HG-9001"
    assert not theatre.coordinator.formation.waiting
    goes_on(theatre)


@pytest.mark.parametrize("event", ["closed", "silent", "verdict", "stage", "job"])
def test_in_what_spark_or_a_connection_tells(theatre, event):
    consumers, run, producer = started(theatre)
    run.lost = run.silent = run.job_finished = run.consumer_ended = explode
    match event:
        case "closed":
            theatre.hang_up(producer)
        case "silent":
            theatre.coordinator.silent(producer, "h", 10.0)
        case "verdict":
            del run.lost
            theatre.hang_up(consumers[0])
            theatre.verdict("SUCCESS")
        case "stage":
            theatre.stage(1, 2, 2, "COMPLETE")
        case "job":
            theatre.job_ended(run, [0])
    theatre.settle()
    ended_by_the_bug(theatre, run)
    goes_on(theatre)


class FailingSide(Side):
    """Fails in its requests to Spark for one exchange."""

    def submit(self, run):
        super().submit(run)
        if run.exchange_id == EXCHANGE:
            explode()


@pytest.fixture
def served():
    side = FailingSide()
    keys = {exchange: control_key(SECRET, exchange) for exchange in (EXCHANGE, OTHER)}
    server = Server("127.0.0.1", keys.get, lambda _: side, Retries(), Timing())
    for exchange in keys:
        server.coordinator.exchanges[exchange] = ExchangeFacts(1)
    server.start()
    yield server, side
    server.stop()


def consumer(server, exchange, attempt):
    control = Control(Place("127.0.0.1", server.port, exchange, SECRET, 5.0))
    control.send("CONSUMER", {"stage": attempt, "partition": 0, "attempt": attempt, "index": 0})
    return control


def test_in_a_request_to_spark(served, caplog):
    server, side = served
    with consumer(server, EXCHANGE, 1) as broken, consumer(server, OTHER, 2) as other:
        message = broken.receive()
        assert (message.kind, message["code"]) == ("ABORT", "HG-9001")
        wait_until(lambda: len(side.submitted) == 2, "the job of the other exchange")
        run = next(run for run in side.submitted if run.exchange_id == OTHER)
        server.post(lambda: server.coordinator.job_ended(run.number, 0, None, set()))
        assert [other.receive().kind, other.receive().kind] == ["START", "SEALED"]
        other.bind(run.number, 0)
        other.send("DONE", TOTALS)
        assert other.receive().kind == "OK"
    assert f"exchange {EXCHANGE.hex()[:4]} ends, the others go on" in caplog.text


def test_in_the_bytes_of_a_worker(served, monkeypatch, caplog):
    server, _ = served
    hear = server._hear
    monkeypatch.setattr(server, "_hear", explode)
    with consumer(server, EXCHANGE, 1) as broken:
        message = broken.receive()
        assert (message.kind, message["code"]) == ("ABORT", "HG-9001")
    monkeypatch.setattr(server, "_hear", hear)
    with consumer(server, OTHER, 2):
        wait_until(lambda: 2 in {m.attempt for m in server.coordinator.members.values()}, "it")
    assert "the coordinator failed at a worker's bytes" in caplog.text


def test_in_a_request_of_another_thread(served, caplog):
    server, _ = served
    server.post(explode)
    with consumer(server, OTHER, 2):
        wait_until(lambda: server.coordinator.members, "a worker is heard all the same")
    assert "failed at a request of another thread" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_without_a_descriptor_the_driver_waits_and_says_so_once(served, monkeypatch, caplog):
    server, _ = served
    tried = []

    def accept(_):
        tried.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    caplog.set_level(logging.INFO, "headgate.spark")
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", accept)
        with socket.create_connection(("127.0.0.1", server.port)):
            wait_until(lambda: len(tried) >= 5, "five tries", 20)
    steps = [late - soon for soon, late in itertools.pairwise(tried)]
    assert min(steps) >= 0.09, f"seconds between tries: {steps}"
    lines = [r for r in caplog.records if "cannot accept connections" in r.getMessage()]
    assert [line.levelname for line in lines] == ["ERROR"]
    assert "Too many open files" in lines[0].getMessage()
    with consumer(server, OTHER, 2):
        wait_until(lambda: server.coordinator.members, "a worker is accepted again")


def resident():
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))


def test_a_worker_that_reads_nothing_is_closed_before_it_costs_16_mib(served, caplog):
    server, _ = served
    grown = []

    def send_much():
        (member,) = server.coordinator.members.values()
        before = resident()
        for _ in range(600):  # 34 MiB
            message = Message("SOURCE_EVENT", 1, 0, {"name": "x", "payload": "A" * 43_000})
            server._do_all([Send(member.connection, message)])
            grown.append(resident() - before)

    with consumer(server, OTHER, 1):
        wait_until(lambda: len(server.coordinator.members) == 1, "the worker")
        server.post(send_much)
        wait_until(lambda: len(grown) == 600, "all messages", 20)
    assert "bytes unread, more than the limit of 8388608" in caplog.text
    assert max(grown) < 16 << 20


def test_60_mib_of_output_are_not_copied_whole_at_each_write():
    key = control_key(SECRET, EXCHANGE)
    worker, coordinator = WorkerLink(key, EXCHANGE), CoordinatorLink({EXCHANGE: key}.get)
    for sender, receiver in ((worker, coordinator), (coordinator, worker), (worker, coordinator)):
        data = sender.output()
        sender.written(len(data))
        receiver.receive(data)
    message = Message("SOURCE_EVENT", 1, 0, {"name": "x", "payload": "A" * 43_000})
    sent = 0
    while coordinator.pending < 60 << 20:
        coordinator.send(message)
        sent += 1
    whole, copied, found = coordinator.pending, 0, 0
    while coordinator.pending:
        data = coordinator.output()
        copied += len(data)
        # A socket takes a part.
        taken = min(len(data), 16 << 10)
        coordinator.written(taken)
        found += len(worker.receive(data[:taken]))
    assert copied < 5 * whole
    assert found == sent


def test_a_worker_asks_for_places_once_per_connection():
    asked, lost = [], []

    class Kept:
        def places(self, exchange):
            asked.append(exchange)
            return [Message("PLACES", fields={"hosts": [], "producers": [], "is_last": True})]

        def host_lost(self, exchange, process):
            lost.append((exchange, process))

    keys = {EXCHANGE: control_key(SECRET, EXCHANGE)}
    server = Server("127.0.0.1", keys.get, lambda _: Side(), Retries(), Timing(), Kept())
    server.coordinator.exchanges[EXCHANGE] = ExchangeFacts(0)
    server.start()
    try:
        with Control(Place("127.0.0.1", server.port, EXCHANGE, SECRET, 5.0)) as control:
            control.send("HOST_LOST", {"process": "ab" * 16})
            control.send("ASK_PLACES")
            assert [message.kind for message in control._connection.receive()] == ["PLACES"]
            control.send("ASK_PLACES")
            with pytest.raises(CoordinatorError):
                control._connection.receive()
    finally:
        server.stop()
    assert asked == [EXCHANGE]
    assert lost == [(EXCHANGE, "ab" * 16)]
