"""headgate.testing.Service: the same faults in each run, limits, and a bill that clients cannot change."""

import asyncio
import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.kit.waiting import wait_until

from headgate.errors import ClosedError, OptionError, PeerLostError
from headgate.testing import Service

#: Enough of them that each share of faults has some.
BODIES = [f"body {number}".encode() for number in range(200)]
CALLS = 3 * len(BODIES)
FAULTS = {"refusals": 0.1, "errors": 0.1, "resets": 0.1, "latency": 0.001, "spread": 0.0005}


def place(service):
    parts = urlsplit(service.url)
    return parts.hostname, parts.port


def call(service, body=b"tea", call_id=None, timeout=30.0, **headers):
    """Make a call; return its status, headers and body, or the name of the error."""
    connection = http.client.HTTPConnection(*place(service), timeout=timeout)
    try:
        named = {} if call_id is None else {"Idempotency-Key": call_id}
        connection.request("POST", "/", body, {**named, **headers})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__, {}, b""
    finally:
        connection.close()


def outcomes(service):
    return Counter(service.calls()["outcome"].to_pylist())


def of_each_body(service, threads):
    """Call each body three times, one after the other, and the bodies in any order; return the statuses by body."""
    bodies = random.sample(BODIES, len(BODIES))
    with ThreadPoolExecutor(threads) as pool:
        statuses = pool.map(lambda body: [call(service, body)[0] for _ in range(3)], bodies)
        return dict(zip(bodies, statuses, strict=True))


def test_faults_are_the_same_in_each_run_in_whatever_order_calls_come():
    with Service(seed=7, **FAULTS) as service:
        first = of_each_body(service, 1)
    with Service(seed=7, **FAULTS) as service:
        assert of_each_body(service, 8) == first
    with Service(seed=8, **FAULTS) as service:
        assert of_each_body(service, 8) != first
    statuses = Counter(status for each in first.values() for status in each)
    assert {200, 429, 500, 502, 503} <= statuses.keys()
    assert 0.6 * CALLS < statuses[200] < 0.8 * CALLS
    assert 0.05 * CALLS < statuses[429] < 0.15 * CALLS


def test_latencies_are_drawn_too_and_some_are_slow():
    with Service(latency=0.005, spread=0.002, slow=0.2, slow_factor=10) as service:
        of_each_body(service, 8)
        seconds = service.calls()["seconds"].to_pylist()
    assert min(seconds) >= 0.003 - 0.001
    assert sum(each >= 0.03 - 0.001 for each in seconds) > 0.1 * CALLS


class TestAnswers:
    def test_what_came_is_sent_back(self):
        with Service() as service:
            status, headers, body = call(service, b"\x00tea", **{"Content-Type": "x/y"})
        assert (status, headers["Content-Type"], body) == (200, "x/y", b"\x00tea")

    def test_a_function_makes_the_answer(self):
        def answer(request):
            value = request.json()
            return value["status"], {"path": request.path, "sum": sum(value["numbers"])}

        with Service(answer) as service:
            body = json.dumps({"status": 200, "numbers": [1, 2]}).encode()
            status, headers, text = call(service, body)
            assert (status, json.loads(text)) == (200, {"path": "/", "sum": 3})
            assert headers["Content-Type"] == "application/json"
            assert call(service, body.replace(b"200", b"422"))[0] == 422
            status, _, text = call(service, b"no json")
            assert status == 500
            assert text.startswith(b"answer() raised JSONDecodeError")
            assert call(service, body.replace(b"200", b"9"))[0] == 500
        assert outcomes(service) == {"answered": 1, "failed": 3}
        assert service.calls()["paid"].to_pylist() == [True, False, False, False]

    @pytest.mark.parametrize(
        ("answer", "body"), [(lambda _: "tea", b"tea"), (lambda _: b"\xff", b"\xff")]
    )
    def test_texts_and_bytes(self, answer, body):
        with Service(answer) as service:
            assert call(service)[2] == body


class TestBill:
    def test_a_call_that_comes_twice_is_paid_twice(self):
        with Service() as service:
            for call_id in ("a", "b", "a", None, None):
                call(service, call_id=call_id)
            ledger = service.ledger()
        counts = ledger.select(["call_id", "calls", "answered", "paid"]).to_pylist()
        assert [tuple(row.values()) for row in counts] == [
            ("a", 2, 2, 2),
            ("b", 1, 1, 1),
            (None, 2, 2, 2),
        ]
        assert ledger["first"][0].as_py() < ledger["first"][1].as_py() < ledger["last"][0].as_py()

    def test_an_idempotent_service_pays_once_also_for_calls_at_one_time(self):
        with Service(idempotent=True, latency=0.1) as service:
            with ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(lambda _: call(service, call_id="a")[0], range(8)))
            assert call(service, call_id="a")[0] == 200
            assert call(service)[0] == call(service)[0] == 200
        assert statuses == [200] * 8
        assert outcomes(service) == {"answered": 3, "replayed": 8}
        assert service.ledger()["paid"].to_pylist() == [1, 2]

    def test_a_call_whose_client_has_left_is_paid(self):
        with Service(latency=0.3) as service:
            assert call(service, timeout=0.05)[0] == "TimeoutError"
            assert outcomes(service) == {"running": 1}
            wait_until(lambda: outcomes(service) == {"abandoned": 1})
            assert service.calls()["status"].to_pylist() == [None]
        assert service.ledger()["paid"].to_pylist() == [1]

    def test_faults_and_what_is_paid_for(self):
        with Service(resets=1) as service:
            assert call(service)[0] in {"ConnectionResetError", "RemoteDisconnected"}
            service.change(resets=0, errors=1)
            assert call(service)[0] in {500, 502, 503}
            service.change(errors=0, refusals=1, retry_after=2.5)
            status, headers, _ = call(service)
            assert (status, headers["Retry-After"], headers["Retry-After-Ms"]) == (429, "3", "2500")
            service.change(refusals=0, silent=1)
            assert call(service, timeout=0.1)[0] == "TimeoutError"
        calls = service.calls()
        assert calls["outcome"].to_pylist() == ["reset", "failed", "refused", "silent"]
        assert calls["paid"].to_pylist() == [True, False, False, False]
        assert calls["status"].to_pylist()[2:] == [429, None]


class TestLimits:
    def test_a_rate_lets_through_what_it_says(self):
        with Service(rate=20, burst=5) as service, ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: call(service)[:2], range(200)))
        calls = service.calls().to_pylist()
        admitted = [row["at"] for row in calls if row["outcome"] == "answered"]
        assert len(calls) == 200
        assert len(admitted) >= 5
        # In no stretch of time more than the burst and what the rate gives.
        for first in range(len(admitted)):
            for last in range(first, len(admitted)):
                seconds = (admitted[last] - admitted[first]).total_seconds()
                assert last - first + 1 <= 5 + 20 * (seconds + 0.002) + 1
        waits = [headers for status, headers in answers if status == 429]
        assert len(waits) == 200 - len(admitted) > 0
        assert all(1 <= int(headers["Retry-After-Ms"]) <= 51 for headers in waits)
        assert {headers["Retry-After"] for headers in waits} == {"1"}

    def test_each_key_has_a_rate_and_a_quota_of_its_own(self):
        with Service(key_rate=0.001, burst=3, quota=5, key="X-Tenant") as service:
            for tenant in ("ann", "bob", "ann", "ann", "ann", "bob"):
                call(service, **{"X-Tenant": tenant})
            service.change(key_rate=None)
            statuses = [call(service, **{"x-tenant": "ann"})[:2] for _ in range(3)]
        assert [status for status, _ in statuses] == [200, 200, 429]
        assert "Retry-After" not in statuses[2][1]
        by_tenant = defaultdict(list)
        for row in service.calls().to_pylist():
            by_tenant[row["key"]].append(row["outcome"])
        assert by_tenant["bob"] == ["answered"] * 2
        assert by_tenant["ann"] == [
            *["answered"] * 3,
            "limited",
            *["answered"] * 2,
            "over quota",
        ]


def test_an_outage_cuts_calls_and_refuses_new_ones_and_the_bill_stays():
    with Service(latency=1) as service:
        call(service, timeout=0.01)
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(call, service)
            wait_until(lambda: service.calls().num_rows == 2)
            with service.outage():
                assert under_way.result()[0] in {"ConnectionResetError", "RemoteDisconnected"}
                assert call(service)[0] == "ConnectionRefusedError"
                assert service.calls().num_rows == 2
            service.change(latency=0)
            assert call(service)[0] == 200
        assert outcomes(service)["cut"] == 1


def test_a_thousand_calls_at_one_time():
    number = 1000
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))

    async def all_at_once(service):
        head = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\ntea"
        pairs = await asyncio.gather(
            *(asyncio.open_connection(*place(service)) for _ in range(number))
        )
        for _, writer in pairs:
            writer.write(head)
        while service.calls().num_rows < number:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
        assert outcomes(service) == {"running": number}
        for _, writer in pairs:
            writer.close()

    try:
        with Service(latency=600) as service:
            asyncio.run(all_at_once(service))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class TestWire:
    def test_a_connection_takes_calls_one_after_the_other(self):
        bodies = [f"number {number}".encode() for number in range(20)]
        requests = (
            b"PUT /x HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            for body in bodies
        )
        with (
            Service(latency=0.01, spread=0.01) as service,
            socket.create_connection(place(service), timeout=30) as raw,
        ):
            raw.sendall(b"".join(requests))
            answers = raw.makefile("rb")
            for body in bodies:
                while answers.readline() != b"\r\n":
                    pass
                assert answers.read(len(body)) == body

    @pytest.mark.parametrize(
        "request_bytes",
        [
            b"nonsense\r\n\r\n",
            b"GET / HTTP/2\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            b"x" * ((64 << 10) + 1),
        ],
    )
    def test_what_is_no_call_is_refused_and_counts_as_none(self, request_bytes):
        with Service() as service:
            with socket.create_connection(place(service), timeout=30) as raw:
                raw.sendall(request_bytes)
                assert raw.makefile("rb").readline() == b"HTTP/1.1 400 Bad Request\r\n"
            assert service.calls().num_rows == 0

    def test_old_clients_have_their_connection_closed(self):
        with Service() as service, socket.create_connection(place(service), timeout=30) as raw:
            raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert b"Connection: close" in raw.makefile("rb").read()


class TestEnd:
    def test_the_calls_can_be_read_after_the_end(self):
        service = Service()
        with service:
            call(service)
        service.close()
        assert service.calls().num_rows == 1
        assert call(service)[0] == "ConnectionRefusedError"
        for use in (lambda: service.change(latency=1), lambda: service.outage().__enter__()):
            with pytest.raises(ClosedError):
                use()

    def test_no_thread_process_or_socket_is_left(self):
        threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
        with Service(latency=60) as service:
            call(service, timeout=0.05)
            process = service._process
        assert process.returncode == 0
        assert threading.active_count() == threads
        assert len(list(Path("/proc/self/fd").iterdir())) == files

    def test_a_killed_service_is_told(self):
        with Service() as service:
            os.kill(service._process.pid, signal.SIGKILL)
            with pytest.raises(PeerLostError, match="has ended"):
                service.calls()
        with pytest.raises(PeerLostError, match="has ended"):
            service.ledger()

    def test_it_ends_with_the_program_that_uses_it(self):
        program = """
            import time
            from headgate.testing import Service
            service = Service()
            print(service.url, flush=True)
            time.sleep(600)
        """
        command = [sys.executable, "-c", textwrap.dedent(program)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            address = urlsplit(other.stdout.readline().decode().strip())
            with socket.create_connection((address.hostname, address.port)):
                other.kill()
        wait_until(lambda: is_refused(address.hostname, address.port))


def is_refused(*at):
    try:
        socket.create_connection(at).close()
    except ConnectionRefusedError:
        return True
    return False


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"latency": "fast"}, "latency='fast'"),
            ({"errors": 1.5}, "errors=1.5 is above 1"),
            ({"rate": 0}, "rate=0 is too low"),
            ({"rate": "500/s"}, "rate='500/s' is not a number"),
            ({"burst": 0}, "burst=0 is outside"),
            ({"quota": -1}, "quota=-1 is outside"),
            ({"errors": 0.6, "silent": 0.6}, "have a sum of 1.2"),
            ({"answer": "tea"}, "answer='tea'"),
            ({"answer": lambda: "tea"}, "cannot be called"),
        ],
    )
    def test_a_wrong_argument_is_refused(self, options, text):
        with pytest.raises(OptionError, match=text):
            Service(**options)

    def test_an_answer_that_cannot_be_sent_is_named(self):
        lock = threading.Lock()
        with pytest.raises(OptionError, match="answer= cannot be pickled") as error:
            Service(lambda _: lock.locked())
        assert "variable 'lock'" in str(error.value)

    def test_a_change_of_an_unknown_argument_suggests_another(self):
        with Service() as service:
            with pytest.raises(OptionError, match="no argument 'latancy'") as error:
                service.change(latancy=1)
            assert "latency=" in str(error.value)
            with pytest.raises(OptionError, match="no argument 'answer'"):
                service.change(answer=None)

    def test_tables_have_their_columns_without_a_call(self):
        with Service() as service:
            assert service.calls().schema.field("at").type == pa.timestamp("us", "UTC")
            assert service.ledger().num_rows == 0
