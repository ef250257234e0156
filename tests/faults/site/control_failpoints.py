"""Failpoints on every control message of a process; see ../failpoints.py.

The rules are in a file, so that a new rule holds in running processes too. Each hit creates a
numbered file, so that the count of hits covers all processes.
"""

import json
import os
import random
import signal
import time
from pathlib import Path


def folder():
    """Return the folder of the rules and of the records of hits."""
    return Path(os.environ["HEADGATE_TEST_FAILPOINTS"])


def hit(point, hang_up=None):
    """Act on the rules of a point that the process has reached."""
    try:
        rules = json.loads((folder() / "rules.json").read_text())
    except FileNotFoundError:
        return
    for index, rule in enumerate(rules):
        if rule["point"] == point:
            number = _take_number(f"{rule['name']}-{index}")
            first, last = rule["skip"], rule["skip"] + rule["times"]
            lot = random.Random(f"{rule['seed']}-{index}-{number}").random()
            if first <= number < last and lot < rule["chance"]:
                _note(rule, number)
                _act(rule, hang_up)


def _take_number(name):
    number = 0
    while True:
        try:
            os.close(os.open(folder() / f"pass-{name}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return number


def _note(rule, number):
    fired = {"point": rule["point"], "action": rule["action"], "pid": os.getpid()}
    draft = folder() / f"draft-{os.getpid()}"
    draft.write_text(json.dumps({**fired, "parent": os.getppid(), "at": time.time()}))
    draft.rename(folder() / f"fired-{rule['name']}-{number}-{os.getpid()}.json")


def _act(rule, hang_up):
    match rule["action"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(rule["seconds"])
        case "raise":
            raise RuntimeError(f"raised by the failpoint {rule['point']!r}")
        case "hang up" if hang_up is not None:
            hang_up()
        case action:
            raise ValueError(f"unknown action {action!r} at {rule['point']!r}")


def of_worker(module):
    """Add the points of a worker's connection.

    A message counts as handled once the worker reads or sends again.
    """
    connection = module.WorkerConnection
    send, receive, is_readable = connection.send, connection.receive, connection.is_readable

    def handled(self):
        kinds, self.__dict__["unhandled"] = self.__dict__.get("unhandled", []), []
        for kind in kinds:
            hit(f"{role(self)} handled {kind}", self.shut_down)

    def role(self):
        return self.__dict__.get("role", "worker")

    def send_with_points(self, message):
        if "role" not in self.__dict__:
            # The kind of the first message is the role: CONSUMER, PRODUCER or HEARTBEAT.
            self.__dict__["role"] = message.kind.lower()
        handled(self)
        hit(f"{role(self)} sends {message.kind}", self.shut_down)
        send(self, message)
        hit(f"{role(self)} sent {message.kind}", self.shut_down)

    def receive_with_points(self):
        handled(self)
        messages = receive(self)
        self.__dict__["unhandled"] = [message.kind for message in messages]
        for message in messages:
            hit(f"{role(self)} received {message.kind}", self.shut_down)
        return messages

    def is_readable_with_points(self, timeout):
        handled(self)
        return is_readable(self, timeout)

    connection.send = send_with_points
    connection.receive = receive_with_points
    connection.is_readable = is_readable_with_points


def of_coordinator(module):
    """Add the points of a message that the driver handles."""
    message = module.Coordinator.message

    def message_with_points(self, connection, exchange_id, said, now):
        hit(f"driver received {said.kind}")
        message(self, connection, exchange_id, said, now)
        hit(f"driver handled {said.kind}")

    module.Coordinator.message = message_with_points


def of_channel(module):
    """Add the points of a message that the driver sends. "Sent" means passed to the kernel."""
    link = module.CoordinatorLink
    send, written = link.send, link.written

    def send_with_points(self, message):
        hit(f"driver sends {message.kind}")
        send(self, message)
        self.__dict__.setdefault("unsent", []).append(message.kind)

    def written_with_points(self, count):
        written(self, count)
        if not self.pending:
            kinds, self.__dict__["unsent"] = self.__dict__.get("unsent", []), []
            for kind in kinds:
                hit(f"driver sent {kind}")

    link.send = send_with_points
    link.written = written_with_points


PATCHES = {
    "headgate.control.connection": of_worker,
    "headgate.spark.driver.coordinator": of_coordinator,
    "headgate.spark.wire.channel": of_channel,
}
