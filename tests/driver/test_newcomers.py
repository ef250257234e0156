"""Connections before their proof: limits, and a flood that costs only the flooding address."""

import socket
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.leftovers import our_threads
from tests.kit.places import EXCHANGE, SECRET, serving
from tests.kit.waiting import wait_until

from headgate.control import newcomers
from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.link import CoordinatorLink, WorkerLink, control_key
from headgate.control.newcomers import Newcomers
from headgate.errors import HandshakeError
from headgate.spark.wire import CODEC


def challenge(hello):
    link = CoordinatorLink({EXCHANGE: control_key(b"!" * 32, EXCHANGE)}.get, CODEC)
    link.receive(hello)
    return bytes(link.output())


#: A HELLO of a peer that knows the exchange's number but not its secret.
HELLO = bytes(WorkerLink(control_key(b"?" * 32, EXCHANGE), EXCHANGE, CODEC).output())

#: That of a driver with another secret.
CHALLENGE = challenge(HELLO)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("cccnl"),
            st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]),
            st.integers(0, 40),
        ),
        max_size=60,
    )
)
def test_no_host_crowds_out_another(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newcomers, "MAX_STRANGERS", 4)
        patch.setattr(newcomers, "MAX_NAMED", 3)
        ours = Newcomers()
    here = {"came": {}, "named": {}}
    for number, (step, host, which) in enumerate(steps):
        known = {**here["came"], **here["named"]}
        if step == "c":
            pool, limit, closed = "came", 4, ours.came(number, host)
            here["came"][number] = host
        elif step == "n" and here["came"]:
            moved = sorted(here["came"])[which % len(here["came"])]
            source = here["came"].pop(moved)
            pool, limit, closed = "named", 3, ours.named(moved, source)
            here["named"][moved] = source
        elif known:
            gone = sorted(known)[which % len(known)]
            ours.left(gone, known[gone])
            for numbers in here.values():
                numbers.pop(gone, None)
            continue
        else:
            continue
        numbers = here[pool]
        assert (closed is not None) == (len(numbers) > limit)
        if closed is not None:
            counts = Counter(numbers.values())
            crowd = numbers.pop(closed)
            assert counts[crowd] == max(counts.values())
            if pool == "came":
                assert all(closed < n for n, name in numbers.items() if name == crowd)


@pytest.fixture
def server():
    before = our_threads()
    with serving() as places:
        yield places.server
    assert our_threads() == before


def dial(port, source, data):
    sock = socket.create_connection(("127.0.0.1", port), 5, (source, 0))
    sock.sendall(data)
    return sock


@pytest.mark.parametrize(
    "data",
    [b"", HELLO[:10], b"GET / HTTP/1.1\r\n\r\n", HELLO],
    ids=["silent", "cut", "http", "named"],
)
def test_a_worker_with_a_slow_link_gets_in_while_another_host_floods(server, data):
    """Its handshake takes longer than the flood needs to fill the room many times."""
    stop, dialled = threading.Event(), []

    def flood():
        held = []
        while not stop.is_set():
            held.append(dial(server.port, "127.0.0.9", data))
            dialled.append(1)
            if len(held) > 100:
                held.pop(0).close()
        for sock in held:
            sock.close()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        link = WorkerLink(control_key(SECRET, EXCHANGE), EXCHANGE, CODEC)
        with socket.create_connection(("127.0.0.1", server.port), 5, ("127.0.0.2", 0)) as sock:
            while not link.established:
                before = len(dialled)
                wait_until(lambda: len(dialled) > before + 300, "the flood fills the room", 60)  # noqa: B023
                sent = sock.send(link.output())
                link.written(sent)
                if not link.pending:
                    got = sock.recv(1000)
                    assert got, "the worker was crowded out"
                    link.receive(got)
    finally:
        stop.set()
        flooding.join(30)
    wait_until(lambda: not server.peers, "the connections are closed")


def test_a_worker_that_was_crowded_out_dials_again():
    """The first two connections are closed before any answer."""
    served = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(2):
                sock, _ = listener.accept()
                sock.close()
                served.append("closed")
            sock, _ = listener.accept()
            with sock:
                sock.sendall(CHALLENGE)
                served.append("answered")
                sock.recv(1)

        serving = threading.Thread(target=serve)
        serving.start()
        place = CoordinatorAddress("127.0.0.1", listener.getsockname()[1], EXCHANGE, SECRET, 20.0)
        with pytest.raises(HandshakeError, match="could not prove"):
            WorkerConnection(place, CODEC)
        serving.join(10)
    assert served == ["closed", "closed", "answered"]
