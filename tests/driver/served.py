"""A control server of the driver, without Spark, and a worker's connections to it."""

import contextlib
import threading

from headgate.control.connection import WorkerConnection
from headgate.control.place import Place
from headgate.spark.driver.server import HANDSHAKE, Server
from headgate.spark.wire.channel import MESSAGES, control_key
from headgate.spark.wire.messages import Message

EXCHANGE, OTHER = b"x" * 16, b"y" * 16
SECRET = b"s" * 32
KEYS = {exchange: control_key(SECRET, exchange) for exchange in (EXCHANGE, OTHER)}


class Kept:
    """Knows no producer, and records what it is asked and told."""

    def __init__(self):
        self.asked, self.lost = [], []

    def places(self, exchange_id):
        self.asked.append(exchange_id)
        return [Message("PLACES", {"hosts": [], "producers": [], "is_last": True})]

    def host_lost(self, exchange_id, process):
        self.lost.append((exchange_id, process))


def ours():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("headgate"))


@contextlib.contextmanager
def serving(kept=None, handshake=HANDSHAKE, keys=KEYS):
    """Serve both exchanges."""
    server = Server("127.0.0.1", keys.get, Kept() if kept is None else kept, handshake)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def place(server, secret=SECRET, exchange=EXCHANGE, timeout=5.0, *, tls=False):
    return Place("127.0.0.1", server.port, exchange, secret, timeout, tls=tls)


@contextlib.contextmanager
def connected(server, exchange=EXCHANGE):
    """A worker's connection."""
    connection = WorkerConnection(place(server, exchange=exchange), MESSAGES)
    with connection.sock:
        yield connection


def told(connection):
    """Ask for places; return the kinds of the answer."""
    connection.send(Message("ASK_PLACES"))
    return [message.kind for message in connection.receive()]
