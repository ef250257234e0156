"""A part of the doctor on a host of its own, without Spark: the driver's post, or a task.

doctor_program.py post PLACE NUMBER SIZE SECONDS    writes PLACE, prints the report as JSON
doctor_program.py task PLACE NUMBER                 waits for PLACE
"""

import json
import os
import pickle
import socket
import sys
import time
from pathlib import Path

import pyarrow as pa

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
        whole.write_bytes(pickle.dumps(made.place))
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


if __name__ == "__main__":
    kind, folder, *rest = sys.argv[1:]
    assert os.getuid() == 0
    {"post": post, "task": task}[kind](Path(folder), *map(int, rest))
