"""How a task of a kept exchange tells the driver that it has started: by one datagram, which may be lost.

A report comes when a task has ended, and Spark's own books do not say which stage is part of which
exchange. A datagram makes nobody wait, and what is lost is only the beginning of the line of progress.

Decision: ADR 0030.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.spark.tasks.identity import task_context

if TYPE_CHECKING:
    from headgate.spark.tasks.report import Role

#: Bytes of the word that shows that a datagram comes from a task of this application.
TOKEN_BYTES: Final = 16
#: More than any datagram of ours has.
MAX_BYTES: Final = 512

_newest: tuple[bytes, str, str, int] | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """The address at which the driver listens to tasks that start.

    Attributes:
        host: name or address of the driver.
        port: of UDP.
        token: the first bytes of each datagram.
    """

    host: str
    port: int
    token: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """A task that has started.

    Attributes:
        exchange: name of the exchange, of all its inputs.
        partitions: partitions of its result.
        role: "map" for a producer, "reduce" for a consumer.
        execution: id of Spark's SQL execution; None where an RDD's action ran the task.
        stage: id of Spark's stage.
    """

    exchange: str
    partitions: int
    role: Role
    execution: int | None
    stage: int


def tell_start(listener: Listener, exchange: str, partitions: int, role: Role) -> None:
    """Tell the driver that this worker runs a task; once for each stage. Never block and never raise.

    Args:
        listener: of the driver.
        exchange: name of the exchange, of all its inputs.
        partitions: partitions of its result.
        role: of the task.
    """
    global _newest  # noqa: PLW0603 - a worker runs one task at a time
    context = task_context()
    stage, execution = context.stageId(), context.getLocalProperty("spark.sql.execution.id")
    this = listener.token, exchange, role, stage
    if this == _newest:
        return
    _newest = this
    text = json.dumps([exchange, partitions, role, int(execution) if execution else None, stage])
    # The driver's name is one that this executor has resolved before, to connect to the driver.
    with contextlib.suppress(OSError):
        info = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(*info[:3]) as sender:
            sender.setblocking(False)
            sender.sendto(listener.token + text.encode("ascii"), info[4])


def notice_of(token: bytes, data: bytes) -> Notice | None:
    """Return what a datagram says; None if it is not from a task of this application."""
    if not hmac.compare_digest(data[:TOKEN_BYTES], token):
        return None
    exchange, partitions, role, execution, stage = json.loads(data[TOKEN_BYTES:])
    return Notice(exchange, partitions, role, execution, stage)
