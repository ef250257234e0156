"""The doctor on hosts that reach the driver, and not each other; and on a slow link.

Its parts run without Spark, each on a host of its own: this file, with the arguments
post PLACE NUMBER SIZE SECONDS (writes PLACE, prints the report as JSON) or task PLACE NUMBER (waits for PLACE).
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.namespaces import Network, ip, why_not

from headgate._option_table import TASK_OPTIONS
from headgate._options import resolve
from headgate.spark.doctor.checks import network
from headgate.spark.doctor.context import Context
from headgate.spark.doctor.crew import Connections, Invited, examine
from headgate.spark.doctor.examination import findings_of
from headgate.spark.doctor.findings import Report
from headgate.spark.doctor.peer import PeerTask, run


def own_address():
    """Return the address of this host, which has one beside the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("198.18.0.254", 9))  # sends nothing
        return asking.getsockname()[0]


def post(place, number, size, seconds):
    """Examine so many tasks."""
    address = own_address()
    begin = time.monotonic()
    with Connections(address, address, 60.0, tls=False) as made:
        whole = place.with_suffix(".whole")
        whole.write_bytes(pickle.dumps(made.address))
        whole.rename(place)
        names = {n: f"{n}" for n in range(number)}
        guests = Invited(names, names, is_alone=False, failed=dict)
        crew, _ = examine(made, guests, size, begin + seconds)
    found = findings_of(
        Context(crew=crew, master="spark://"), [network.driver, network.pairs, network.speed]
    )
    report = Report("0", "spark://", number, time.monotonic() - begin, found)
    pairs = [[pair.writer, pair.reader, pair.rate, pair.link, pair.error] for pair in crew.pairs]
    print(json.dumps({"report": report.to_json(), "pairs": pairs}))


def task(place, number):
    """Run one task."""
    while not place.exists():
        time.sleep(0.05)
    parsed = resolve("exchange", {})
    options = {name: parsed[name] for name in TASK_OPTIONS}
    schema = pa.schema([("value", pa.int64())])
    list(run(PeerTask(pickle.loads(place.read_bytes()), options, schema), [number]))


ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, "-m", "tests.soak.standalone.test_doctor_hosts"]
HOSTS = ("one", "two", "three")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def hosts():
    """Yield three hosts, and one of the driver."""
    if reason := why_not():
        pytest.skip(reason)
    with Network("driver", *HOSTS) as network:
        yield network
    assert network.names() == []


def examined(network, folder, size=4 << 20, seconds=120):
    """Return the report and the pairs of the doctor, by the numbers of the hosts; all processes end."""
    place = folder / "place"

    def start(host, *words):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return network.start(host, [*PROGRAM, *map(str, words)], cwd=ROOT, **pipes)

    post = start("driver", "post", place, len(HOSTS), size, seconds)
    tasks = [start(host, "task", place, number) for number, host in enumerate(HOSTS)]
    said, wrong = post.communicate(timeout=600)
    assert post.returncode == 0, wrong
    for one in tasks:
        _, wrong = one.communicate(timeout=60)
        assert one.returncode == 0, wrong
    assert not any(network.connections(host, "python") for host in ("driver", *HOSTS))
    found = json.loads(said)
    return found["report"], {(w, r): rest for w, r, *rest in found["pairs"]}


def finding(report, check):
    bad = [one for one in report["findings"] if one["check"] == check and one["level"] != "ok"]
    assert bad, report
    return bad[0]


def test_hosts_that_reach_each_other(hosts, tmp_path):
    report, pairs = examined(hosts, tmp_path)
    # On a busy machine a link may look slow.
    assert {one["level"] for one in report["findings"] if one["check"] != "speed"} == {"ok"}, report
    assert {link for _, link, _ in pairs.values()} == {"tcp"}
    assert len(pairs) == 6


def test_a_host_that_another_one_cannot_reach_is_named(hosts, tmp_path):
    address = hosts.addresses["two"]
    ip("-n", hosts.name("one"), "route", "add", "unreachable", f"{address}/32")
    report, pairs = examined(hosts, tmp_path)
    assert report["exit_code"] == 2
    found = finding(report, "pairs")
    assert found["code"] == "HG-3007"
    assert found["summary"].startswith("2 of 6 pairs failed")
    assert {pair for pair, (*_, error) in pairs.items() if error} == {("1", "0"), ("0", "1")}
    assert "No route to host" in pairs["1", "0"][2]
    assert f"{address}:" in pairs["1", "0"][2]
    assert all(rate for rate, _, error in pairs.values() if not error)


def test_a_host_that_does_not_reach_the_driver_is_named(hosts, tmp_path):
    hosts.cut("three")
    report, _ = examined_without(hosts, tmp_path, "three")
    found = finding(report, "driver")
    assert found["code"] == "HG-3008"
    assert "executor 2 did not reach the driver" in found["summary"]


def examined_without(network, folder, host):
    """Return as :func:`examined` does, and let the task of a host be killed, as Spark does at the end."""
    place = folder / "place"
    post = network.start(
        "driver",
        [*PROGRAM, "post", str(place), str(len(HOSTS)), str(1 << 20), "60"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    tasks = {
        h: network.start(h, [*PROGRAM, "task", str(place), str(n)], cwd=ROOT)
        for n, h in enumerate(HOSTS)
    }
    said, _ = post.communicate(timeout=300)
    network.kill(host)
    for one in tasks.values():
        one.wait(60)
    found = json.loads(said)
    return found["report"], found["pairs"]


def test_the_slow_link_is_named(hosts, tmp_path):
    # Slow enough that the speed of this machine does not matter.
    shape = ("root", "tbf", "rate", "1mbit", "burst", "64k", "latency", "400ms")
    netns = ("ip", "netns", "exec", hosts.name("two"))
    done = subprocess.run(
        [*netns, "tc", "qdisc", "add", "dev", "eth0", *shape],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"this machine has no tc: {done.stderr.strip()}")
    report, pairs = examined(hosts, tmp_path, size=3 << 20)
    found = finding(report, "speed")
    assert found["code"] == "HG-3101"
    assert "the slowest, 1 -> " in found["summary"]
    slowest = min((pair for pair in pairs if pairs[pair][0]), key=lambda pair: pairs[pair][0])
    assert slowest[0] == "1", pairs


if __name__ == "__main__":
    kind, folder, *rest = sys.argv[1:]
    assert os.getuid() == 0
    {"post": post, "task": task}[kind](Path(folder), *map(int, rest))
