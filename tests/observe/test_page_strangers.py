"""Connections of strangers at the live page: they take no descriptors of the driver, and nobody's place for long."""

import contextlib
import logging
import socket
from pathlib import Path

import pytest
from tests.kit.resources import no_descriptor_left
from tests.kit.runs import RUNNING, state
from tests.kit.waiting import wait_until
from tests.observe.test_page import Client, event

from headgate.control.newcomers import MAX_STRANGERS
from headgate.observe.live_page import server
from headgate.observe.live_page.server import Page

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
#: Connections that were accepted and not yet cut, beyond the limit: those of four turns of the event loop.
ACCEPTED = 4 * 64


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def page():
    with Page(state) as page:
        yield page


@pytest.fixture
def client(page):
    with contextlib.closing(Client(page)) as client:
        yield client


@pytest.fixture
def strangers(client):
    """Opens connections with half a head each."""
    with contextlib.ExitStack() as stack:

        def dial(number):
            found = []
            for _ in range(number):
                sock = socket.create_connection((client.host, client.port), 30)
                found.append(stack.enter_context(sock))
                with contextlib.suppress(OSError):  # cut already
                    sock.sendall(HALF_A_HEAD)
            return found

        yield dial


def is_cut(sock):
    sock.settimeout(30)
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def test_strangers_take_few_descriptors_and_no_place_of_who_has_the_token(client, strangers):
    stream = client.open("/events", client.bearer)
    assert event(stream)["run"]["key"] == RUNNING
    before, number = descriptors(), 400
    most = 0
    found = []
    for _ in range(number // 20):
        found += strangers(20)
        most = max(most, descriptors() - before - len(found))
    assert most <= MAX_STRANGERS + ACCEPTED
    assert all(is_cut(sock) for sock in found[: number - MAX_STRANGERS - ACCEPTED])
    assert client.ask("/state.json", client.bearer)[0] == 200
    assert event(stream)["run"]["key"] == RUNNING


def test_a_stranger_has_a_deadline_whatever_it_sends(monkeypatch, client, strangers):
    monkeypatch.setattr(server, "_PROOF", 0.3)
    stream = client.open("/events", client.bearer)
    (slow,) = strangers(1)
    with contextlib.closing(socket.create_connection((client.host, client.port), 30)) as refused:
        refused.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF_A_HEAD)
        assert refused.recv(100).startswith(b"HTTP/1.1 403")
        assert is_cut(slow)
        while refused.recv(1000):
            pass
    for _ in range(2):
        assert event(stream)["run"]["key"] == RUNNING


def test_without_a_descriptor_the_page_waits_and_says_so_once(client, caplog):
    words = "cannot accept connections"

    def said():
        return [r.getMessage() for r in caplog.records if words in r.getMessage()]

    assert client.ask("/")[0] == 403  # its loop runs
    with socket.socket() as waiting, caplog.at_level(logging.ERROR):
        with no_descriptor_left():
            waiting.connect((client.host, client.port))
            wait_until(said, "the page has said so", 30)
        waiting.settimeout(60)
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert waiting.recv(100).startswith(b"HTTP/1.1 403")
    (line,) = said()
    assert "Too many open files" in line
    assert len(caplog.records) == 1
