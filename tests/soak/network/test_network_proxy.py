"""The fault proxy causes the planned faults, and the same ones for the same seed."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.data_plane import wire
from tests.data_plane.conftest import nothing_left
from tests.data_plane.plane import Task, wait_until
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import DELAYS, KINDS, TO_CLIENT, TO_TARGET, Fault

__all__ = ["nothing_left"]

ROOT = Path(__file__).resolve().parents[3]
SENT = bytes(range(256)) * 40


class Server:
    """Sends the same bytes to each client, and keeps the bytes that clients send."""

    def __init__(self, sent=SENT):
        self._sent = sent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.heard = []
        self._tasks = [Task(self._serve)]

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.heard.append(bytearray())
                self._tasks.append(Task(self._talk, sock, self.heard[-1]))

    def _talk(self, sock, heard):
        with sock, contextlib.suppress(OSError):
            sock.sendall(self._sent)
            while data := sock.recv(65_536):
                heard += data

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for task in self._tasks:
            task.join()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def all_of(proxy, timeout=5.0):
    """Return all bytes received, and True if the connection ended."""
    with socket.create_connection((proxy.host, proxy.port)) as sock:
        sock.settimeout(timeout)
        data = b""
        with contextlib.suppress(ConnectionError):
            while True:
                try:
                    more = sock.recv(65_536)
                except TimeoutError:
                    return data, False
                if not more:
                    break
                data += more
        return data, True


DAMAGED = {
    "flip": SENT[:100] + bytes([SENT[100] ^ 8]) + SENT[101:],
    "drop": SENT[:100] + SENT[107:],
    "duplicate": SENT[:107] + SENT[100:],
    "reorder": SENT[:100] + SENT[107:114] + SENT[100:107] + SENT[114:],
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_bytes_are_damaged_as_planned(server, kind):
    with FaultProxy(server.host, server.port, Fault(kind, offset=100, length=7, bit=3)) as proxy:
        assert all_of(proxy, 1) == (DAMAGED[kind], False)
        assert proxy.struck
        # The fault strikes only once, so the next connection is undamaged.
        assert all_of(proxy, 1) == (SENT, False)


@pytest.mark.parametrize("kind", ["cut", "reset", "half-close"])
def test_an_end_comes_after_what_was_before_it(server, kind):
    with FaultProxy(server.host, server.port, Fault(kind, offset=100)) as proxy:
        data, ended = all_of(proxy)
        assert ended
        assert SENT.startswith(data)
        # A reset may discard bytes that were not read yet.
        assert len(data) == 100 or kind == "reset"


def test_a_half_closed_connection_still_takes_bytes_of_the_other_direction(server):
    with (
        FaultProxy(server.host, server.port, Fault("half-close", offset=100)) as proxy,
        socket.create_connection((proxy.host, proxy.port)) as sock,
    ):
        assert len(wire.receive(sock, 200)) == 100
        sock.sendall(b"still here")
        wait_until(lambda: server.heard and server.heard[0] == b"still here")


@pytest.mark.parametrize("kind", DELAYS)
def test_what_only_takes_time_changes_nothing(server, kind):
    fault = Fault(kind, offset=5_000, seconds=0.5, rate=20_000)
    with FaultProxy(server.host, server.port, fault) as proxy:
        started = time.monotonic()
        with socket.create_connection((proxy.host, proxy.port)) as sock:
            assert wire.receive(sock, len(SENT)) == SENT
        took = time.monotonic() - started
        assert took > (0 if kind == "small windows" else 0.2)


@pytest.mark.parametrize("kind", ["stall", "black hole"])
def test_silence_comes_without_an_end(server, kind):
    with FaultProxy(server.host, server.port, Fault(kind, offset=100)) as proxy:
        assert all_of(proxy, 0.5) == (SENT[:100], False)


def test_a_splice_puts_the_bytes_of_one_connection_into_the_next(server):
    fault = Fault("splice", TO_TARGET, offset=4, length=3)
    with FaultProxy(server.host, server.port, fault) as proxy:
        for said in (b"1111aaa1111", b"2222bbb2222", b"3333ccc3333"):
            with socket.create_connection((proxy.host, proxy.port)) as sock:
                sock.sendall(said)
                wait_until(lambda: server.heard and len(server.heard[-1]) == 11)
            wait_until(lambda: proxy.connections == 0)
            server.heard[-1] += b"!"
    assert server.heard == [b"1111aaa1111!", b"2222aaa2222!", b"3333ccc3333!"]


def test_it_stalls_and_goes_on_when_it_is_told(server):
    with FaultProxy(server.host, server.port) as proxy:
        proxy.stall(TO_CLIENT)
        with socket.create_connection((proxy.host, proxy.port)) as sock:
            sock.sendall(b"up")
            wait_until(lambda: server.heard and server.heard[0] == b"up")
            sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                sock.recv(1)
            proxy.resume()
            sock.settimeout(10)
            assert wire.receive(sock, len(SENT)) == SENT


@pytest.mark.parametrize("order", ["cut", "reset"])
def test_it_ends_all_connections_when_it_is_told_and_takes_new_ones(server, order):
    with FaultProxy(server.host, server.port) as proxy, contextlib.ExitStack() as stack:
        connect = lambda: socket.create_connection((proxy.host, proxy.port), timeout=5)  # noqa: E731
        socks = [stack.enter_context(connect()) for _ in range(3)]
        for sock in socks:
            assert wire.receive(sock, len(SENT)) == SENT
        getattr(proxy, order)()
        assert all(wire.is_closed(sock, 5) for sock in socks)
        assert all_of(proxy, 0.5) == (SENT, False)


def test_what_a_black_hole_has_taken_stays_lost(server):
    with (
        FaultProxy(server.host, server.port) as proxy,
        socket.create_connection((proxy.host, proxy.port), timeout=5) as sock,
    ):
        assert wire.receive(sock, len(SENT)) == SENT
        proxy.black_hole(TO_TARGET)
        sock.sendall(b"lost")
        wait_until(lambda: proxy.passed[TO_TARGET] == 4)
        proxy.resume()
        sock.sendall(b"found")
        wait_until(lambda: server.heard[0] == b"found")


def test_a_target_that_is_not_there_is_a_closed_connection():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        host, port = nobody.getsockname()
    with FaultProxy(host, port) as proxy:
        assert all_of(proxy) == (b"", True)


def test_a_seed_gives_the_same_fault_again_and_all_kinds_come_up():
    drawn = [Fault.random(seed) for seed in range(500)]
    assert drawn == [Fault.random(seed) for seed in range(500)]
    assert {fault.kind for fault in drawn} == set(KINDS)
    with pytest.raises(ValueError, match="unknown fault 'drought'"):
        Fault("drought")


def test_as_a_process_it_says_where_it_listens_and_takes_orders(server):
    target = f"{server.host}:{server.port}"
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.kit.fault_proxy",
            "--target",
            target,
            "--seed",
            "7",
            "--calm",
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        word, where, *seed = Task(process.stdout.readline).result().split()
        assert (word, seed) == ("listening", ["seed", "7", "None"])
        host, port = where.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            assert wire.receive(sock, len(SENT)) == SENT
            process.stdin.write("delay 0.1\nfly\ncut\n")
            process.stdin.flush()
            said = [Task(process.stdout.readline).result().strip() for _ in range(3)]
            assert said == ["done delay 0.1", "not done fly: KeyError('fly')", "done cut"]
            assert wire.is_closed(sock, 5)
        process.stdin.close()
        assert process.wait(10) == 0
