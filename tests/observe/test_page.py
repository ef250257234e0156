"""The server of the live page: who gets in, what it serves, and that a job never notices it."""

import contextlib
import http.client
import json
import logging
import re
import socket
import sys
import threading
import warnings
from http.cookiejar import CookieJar
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from tests.kit.runs import FAILED, RUNNING, state

from headgate import errors
from headgate.observe import _extras
from headgate.observe.live_page.events import MAX_CLIENTS
from headgate.observe.live_page.guard import POLICY
from headgate.observe.live_page.links import direct, link_to
from headgate.observe.live_page.server import Page
from headgate.observe.report.page import embedded
from headgate.observe.view import view
from headgate.spark.ui import ui

PATHS = (
    "/",
    "/page.js",
    "/page.css",
    "/icon.svg",
    "/state.json",
    "/report.html",
    "/events",
    "/metrics",
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("JUPYTERHUB_SERVICE_PREFIX", "HEADGATE_UI_LINK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def page():
    with Page(state) as page:
        yield page


class Client:
    """Asks one page, over connections of its own."""

    def __init__(self, page):
        parts = urlsplit(page.address)
        self.host, self.port = parts.hostname, parts.port
        self.token = parts.query.removeprefix("token=")
        self.bearer = {"Authorization": f"Bearer {self.token}"}
        self._open = contextlib.ExitStack()

    def connect(self):
        return contextlib.closing(http.client.HTTPConnection(self.host, self.port, timeout=60))

    def open(self, path, headers=(), method="GET"):
        """Return the answer with its body unread."""
        connection = self._open.enter_context(self.connect())
        connection.request(method, path, headers=dict(headers))
        return connection.getresponse()

    def ask(self, path, headers=(), method="GET"):
        """Return status, headers and body of an answer."""
        with self.connect() as connection:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def close(self):
        """Close all connections."""
        self._open.close()


@pytest.fixture
def client(page):
    with contextlib.closing(Client(page)) as client:
        yield client


def event(answer):
    """Return the next event of a stream."""
    line = answer.readline()
    assert answer.readline() == b"\n"
    return json.loads(line.removeprefix(b"data: "))


def test_without_the_token_everything_is_refused(client):
    wrong = [
        {},
        {"Cookie": f"headgate_{client.port}={client.token}x"},
        {"Cookie": f"headgate={client.token}"},
        {"Cookie": "\xe4=;;"},
        {"Authorization": f"Basic {client.token}"},
        {"Authorization": "Bearer \xe4"},
        {"Authorization": "Bearer"},
    ]
    for path in (*PATHS, "/nothing"):
        assert {client.ask(path, headers)[0] for headers in wrong} == {403}
    for query in ("?token=", "?token=%C3%A4", f"?token={client.token[:-1]}", "?token=%FF"):
        assert client.ask(f"/state.json{query}")[0] == 403


def test_the_token_becomes_a_cookie_which_opens_everything(page, client):
    folder = urlsplit(page.url).path
    status, headers, body = client.ask(f"{folder}?token={client.token}")
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert (status, cookie) == (200, f"headgate_{client.port}={client.token}")
    assert {word.lower() for word in attributes} == {"httponly", "samesite=strict"}
    assert client.token.encode() not in body
    assert b'content="0; url=./"' in body
    # A browser asks for favicon.ico otherwise, and logs an error that there is none.
    assert b'rel="icon" href="./icon.svg"' in body
    with_cookie = {"Cookie": f"headgate_{client.port}=of another port; {cookie}"}
    statuses = {path: client.open(folder + path[1:], with_cookie).status for path in PATHS}
    assert statuses == dict.fromkeys(PATHS, 200)
    assert b"page.js" in client.ask(folder, with_cookie)[2]


def test_a_browser_sends_the_cookie_to_no_other_port(page, client):
    folder = urlsplit(page.url).path
    for link in (page.url, page.address):
        jar = CookieJar()
        with build_opener(ProxyHandler({}), HTTPCookieProcessor(jar)).open(link) as answer:
            leads_to = re.search(r'url=([^"]+)"', answer.read().decode())[1]
        assert urljoin(link, leads_to) == f"http://127.0.0.1:{client.port}{folder}"

        def sent(url, jar=jar):
            request = Request(url)
            jar.add_cookie_header(request)
            return request.get_header("Cookie")

        other = client.port + 1 if client.port < 65535 else client.port - 1
        token = f"headgate_{client.port}={client.token}"
        assert sent(urljoin(page.url, "events?run=1")) == token
        for path in ("", "state.json", "events", f"{folder[:-2]}/"):
            assert sent(f"http://127.0.0.1:{other}/{path}") is None


def test_a_host_that_is_not_ours_is_refused_also_with_the_token(client):
    def status(host):
        return client.ask("/state.json", {**client.bearer, "Host": host})[0]

    for host in ("evil.example", f"evil.example:{client.port}", "127.0.0.1.evil.example", "", "["):
        assert status(host) == 403
    for host in ("localhost", f"127.0.0.1:{client.port}", "LOCALHOST:1", "[::1]:80"):
        assert status(host) == 200


def test_each_answer_locks_the_browser_in(client):
    answers = [client.ask("/", client.bearer), client.ask("/"), client.ask("/x", client.bearer)]
    assert [status for status, _, _ in answers] == [200, 403, 404]
    for _, headers, _ in answers:
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["server"] is None
    sources = [part.split()[1:] for part in POLICY.split(";")]
    assert {word for words in sources for word in words} == {"'self'", "'none'"}


def test_nothing_can_be_changed_and_no_other_file_is_served(client):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert client.ask("/state.json", client.bearer, method)[0] == 405
    for path in ("/../app.py", "/..%2fapp.py", "/static/page.js", "//page.js", "/index.html"):
        assert client.ask(path, client.bearer)[0] == 404
    status, _, body = client.ask("/", client.bearer, "HEAD")
    assert (status, body) == (200, b"")


def test_the_state_the_report_and_the_metrics_are_those_of_now(client):
    status, headers, body = client.ask("/state.json", client.bearer)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == state()
    status, headers, body = client.ask("/report.html", client.bearer)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert embedded(state()) in body.decode()
    status, headers, body = client.ask("/metrics", client.bearer)
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'headgate_num_restarts_total{job="clicks"} 1.0' in body
    assert b"headgate_page_clients 0.0" in body


def test_events_are_the_view_of_the_run_that_was_asked_for(client):
    answer = client.open("/events", client.bearer)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert event(answer) == view(state(), RUNNING)
    chosen = client.open("/events?run=3fa1%2F1", client.bearer)
    assert event(chosen) == view(state(), FAILED)
    assert event(answer)["run"]["key"] == RUNNING


def test_the_number_of_streams_is_bounded(client):
    streams = [client.open("/events", client.bearer) for _ in range(MAX_CLIENTS)]
    assert {stream.status for stream in streams} == {200}
    refused = client.ask("/events", client.bearer)
    assert (refused[0], refused[2]) == (503, b"16 pages are open already\n")
    assert event(streams[0])["run"]["key"] == RUNNING


def test_closing_ends_streams_and_the_thread(page, client):
    stream = client.open("/events", client.bearer)
    event(stream)
    page.close()
    assert stream.read() is not None  # comes to the end
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((client.host, client.port), 5).close()
    assert "headgate-page" not in {thread.name for thread in threading.enumerate()}
    page.close()
    assert repr(page) == "<headgate page: closed>"
    assert "closed" in page._repr_html_()


def test_a_source_that_raises_costs_one_log_line_and_no_server(caplog):
    states = iter([1, 2])

    def source():
        if next(states, None) is not None:
            raise RuntimeError("Spark is gone")
        return state()

    with (
        Page(source) as page,
        contextlib.closing(Client(page)) as client,
        caplog.at_level(logging.DEBUG, "headgate"),
    ):
        assert client.ask("/state.json", client.bearer)[0] == 500
        assert client.ask("/state.json", client.bearer)[0] == 500
        assert client.ask("/state.json", client.bearer)[0] == 200
    said = [r for r in caplog.records if r.name.startswith("headgate")]
    assert [str(record.exc_info[1]) for record in said] == ["Spark is gone"]


def test_a_port_that_is_taken_is_a_warning_and_no_error(page):
    port = urlsplit(page.address).port
    with pytest.warns(errors.HeadgateWarning, match="there is no live page") as caught:
        other = Page(state, port=port)
    assert len(caught) == 1
    assert (other.url, other.address) == ("", "")
    assert "did not start" in repr(other)
    other.close()


def test_links_lead_through_the_proxy_of_a_notebook_server(monkeypatch):
    hub = {"JUPYTERHUB_SERVICE_PREFIX": "/user/ann/"}
    assert (
        link_to("127.0.0.1", 80, hub).with_token("a b", "f") == "/user/ann/proxy/80/f/?token=a%20b"
    )
    own = {**hub, "HEADGATE_UI_LINK": "https://x/{JUPYTERHUB_SERVICE_PREFIX}/{port}?a=1"}
    link = link_to("127.0.0.1", 80, own)
    assert (link.with_token("t", "f"), link.behind_proxy) == (
        "https://x//user/ann//80?a=1&token=t",
        True,
    )
    assert not link_to("127.0.0.1", 80, {}).behind_proxy
    assert (direct("::1", 1), direct("0.0.0.0", 1)) == ("http://[::1]:1/", "http://127.0.0.1:1/")
    monkeypatch.setenv("HEADGATE_UI_LINK", 'https://hub/"><b>{port}')
    with Page(state) as page, contextlib.closing(Client(page)) as client:
        shown = page._repr_html_()
        assert "<b>" not in shown
        assert "&lt;b&gt;" in shown
        # A proxy passes its own Host on.
        headers = {**client.bearer, "Host": "hub"}
        assert client.ask("/state.json", headers)[0] == 200
    monkeypatch.setenv("HEADGATE_UI_LINK", "{NO_SUCH_VARIABLE}")
    with pytest.warns(errors.HeadgateWarning, match="NO_SUCH_VARIABLE"):
        assert Page(state).url == ""


def test_a_second_call_returns_the_page_that_is_open(monkeypatch):
    monkeypatch.setattr(sys.modules[ui.__module__], "_pages", {})
    with warnings.catch_warnings(), ui() as page:
        warnings.simplefilter("error")
        assert ui() is page
        parts, address = urlsplit(page.url), urlsplit(page.address)
        assert (parts.netloc, parts.query) == (address.netloc, address.query)
        assert repr(page) == f"<headgate page at {page.url}>"
    with ui() as again:
        assert again is not page


def test_without_the_packages_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(_extras, "_is_installed", lambda name: name != "uvicorn")
    with pytest.raises(errors.PackageNotFound, match=r"uvicorn[\s\S]*headgate\[ui\]"):
        ui()
