"""The socket between Spark's JVM and this worker.

Spark sends the function of a task, and then its rows. If both are short, TCP holds the rows back until this end
acknowledges the function (Nagle's algorithm), and this end delays that by 40 ms, as it might have data to send with it
(RFC 1122, section 4.2.3.2). Each Python task of Spark may wait so.

Decision: ADR 0025.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_INTERNET: Final = {socket.AF_INET, socket.AF_INET6}
_LOOPBACK: Final = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
#: Linux alone lets a program ask for an acknowledgement. It sends one that it owes, and the next few at once.
_ACKNOWLEDGE: Final = getattr(socket, "TCP_QUICKACK", None)


def without_delays(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the JVM sends, without the waits of TCP for more data; in both directions."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connection) for connection in _from_jvm()]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _acknowledge(connections)
        for batch in batches:
            yield batch
            _acknowledge(connections)


def _acknowledge(connections: list[socket.socket]) -> None:
    if _ACKNOWLEDGE is not None:
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, _ACKNOWLEDGE, 1)


def _from_jvm() -> Iterator[socket.socket]:
    """Yield duplicates of the TCP connections to this host that the process has; none on Windows, which has no such folder."""
    folder = Path("/dev/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        number = int(entry.name)
        with suppress(OSError):  # not open any more, or not connected
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                connection = socket.socket(fileno=os.dup(number))
                if _is_from_jvm(connection):
                    yield connection
                else:
                    connection.close()


def _is_from_jvm(connection: socket.socket) -> bool:
    is_tcp = connection.type == socket.SOCK_STREAM and connection.family in _INTERNET
    try:
        return is_tcp and connection.getpeername()[0] in _LOOPBACK
    except OSError:  # it listens
        return False
