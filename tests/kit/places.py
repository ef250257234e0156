"""The driver's service of places, without Spark, and a worker's connections to it."""

import contextlib

from headgate.control.address import CoordinatorAddress
from headgate.control.connection import WorkerConnection
from headgate.control.link import control_key
from headgate.control.messages import Message
from headgate.control.server import HANDSHAKE
from headgate.spark.driver.host_lookup import IDLE, HostLookup
from headgate.spark.driver.kept.hosts import KeptHosts
from headgate.spark.wire import CODEC

EXCHANGE, OTHER = b"x" * 16, b"y" * 16
SECRET = b"s" * 32
KEYS = {exchange: control_key(SECRET, exchange) for exchange in (EXCHANGE, OTHER)}


@contextlib.contextmanager
def serving(hosts=None, handshake=HANDSHAKE, idle=IDLE, keys=KEYS, give_up=print):
    """Serve both exchanges, whose names are their ids in hexadecimal."""
    places = HostLookup("127.0.0.1", give_up, idle=idle, handshake=handshake)
    for exchange, key in keys.items():
        places.register(exchange, key, hosts or KeptHosts(), exchange.hex())
    try:
        yield places
    finally:
        places.close()


def place(places, secret=SECRET, exchange=EXCHANGE, timeout=5.0, *, tls=False):
    return CoordinatorAddress("127.0.0.1", places.server.port, exchange, secret, timeout, tls=tls)


@contextlib.contextmanager
def connected(places, exchange=EXCHANGE):
    """A worker's connection."""
    connection = WorkerConnection(place(places, exchange=exchange), CODEC)
    with connection.sock:
        yield connection


def told(connection):
    """Ask for places; return the kinds of the answer."""
    connection.send(Message("ASK_HOSTS"))
    return [message.kind for message in connection.receive()]
