"""Many channels the plain way: one TCP socket each, watched by epoll, in pieces of one size.

Nothing limits the sender but the kernel, which buffers as much as it likes. Nothing is checked, and the bytes
hold no records.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection

HOST = "127.0.0.1"
PIECE = 16 << 10


def produce(orders: Connection) -> None:
    """Send pieces through sockets, as ordered, until the other end closes the connection."""
    allow_sockets()
    while True:
        try:
            count, pieces = orders.recv()
        except EOFError:
            return
        with ExitStack() as stack, selectors.EpollSelector() as writable:
            with socket.create_server((HOST, 0), backlog=count) as server:
                orders.send(server.getsockname())
                for index in range(count):
                    accepted = stack.enter_context(server.accept()[0])
                    accepted.setblocking(False)
                    own = pieces // count + (index < pieces % count)
                    writable.register(accepted, selectors.EVENT_WRITE, [own * PIECE])
            orders.recv()
            send(writable)


def send(writable: selectors.BaseSelector) -> None:
    content = memoryview(bytes(PIECE))
    while writable.get_map():
        for key, _ in writable.select():
            left = key.data
            if not left[0]:
                writable.unregister(key.fileobj)
                key.fileobj.shutdown(socket.SHUT_WR)
                continue
            left[0] -= key.fileobj.send(content[: left[0]])


def read(orders: Connection, count: int, pieces: int) -> float:
    """Return the seconds that this many pieces take through this many sockets."""
    allow_sockets()
    orders.send((count, pieces))
    address = orders.recv()
    buffer = bytearray(PIECE)
    received = 0
    with ExitStack() as stack, selectors.EpollSelector() as readable:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address))
            connection.setblocking(False)
            readable.register(connection, selectors.EVENT_READ)
        orders.send("go")
        started = time.perf_counter()
        while readable.get_map():
            for key, _ in readable.select():
                size = key.fileobj.recv_into(buffer)
                received += size
                if not size:
                    readable.unregister(key.fileobj)
        seconds = time.perf_counter() - started
    if received != pieces * PIECE:
        raise AssertionError(f"{received} bytes came, {pieces * PIECE} were sent")
    return seconds


def allow_sockets() -> None:
    """Raise this process's limit of descriptors as far as allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
