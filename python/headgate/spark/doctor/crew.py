"""The doctor's end of the exchange between pairs of executors.

The tasks connect to it, and do what it says, pair by pair: in round ``r`` the task ``i`` reads from the task ``i + r``.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate._closing import Closing
from headgate.control.address import CoordinatorAddress
from headgate.control.link import control_key
from headgate.control.messages import Message
from headgate.control.server import HANDSHAKE, ControlServer
from headgate.control.thread import ControlThread
from headgate.errors import ConnectError, PeerLostError
from headgate.spark.doctor.context import Crew, Pair
from headgate.spark.doctor.wire import ANSWERS, CODEC

if TYPE_CHECKING:
    from headgate.control.server import Peer

_LOG: Final = logging.getLogger("headgate.spark")
#: Seconds between two looks at Spark while tasks are awaited.
_LOOK: Final = 0.1
#: Most seconds for the members to dial each other, and for one round of pairs; a round needs this much time left.
_ANSWER: Final = 15.0
_ROUND: Final = 15.0
_SHORTEST: Final = 1.0
#: Most seconds that a task may answer late.
_LATE: Final = 3.0


@dataclass(frozen=True, slots=True)
class Member:
    """A task that takes part.

    Attributes:
        peer: its connection.
        name: of its executor.
        host: of its data plane.
        port: of its data plane.
        process: of its data plane.
    """

    peer: Peer
    name: str
    host: str
    port: int
    process: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a task.

    Attributes:
        message: of the task.
        sent: epoch seconds at which it was asked.
        received: epoch seconds at which the answer was there.
    """

    message: Message
    sent: float
    received: float


class Connections(Closing):
    """The connections of the doctor's tasks; close it, which ends the tasks.

    Args:
        bind_host: address to listen on.
        host: the driver's address for executors.
        timeout: seconds in which a task must reach the driver.
        tls: True if the connections are encrypted.
        handshake: seconds for the proof of a connection.

    Attributes:
        server: has them, on its own thread.
        address: where the tasks connect.
        gone: those that have ended.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(
        self, bind_host: str, host: str, timeout: float, *, tls: bool, handshake: float = HANDSHAKE
    ) -> None:
        secret, name = os.urandom(32), os.urandom(16)
        keys = {name: control_key(secret, name, tls=tls)}
        self.server = ControlServer(bind_host, keys.get, CODEC, self, _LOG, handshake=handshake)
        self.address = CoordinatorAddress(
            host, self.server.port, name, secret, timeout=timeout, tls=tls
        )
        self.gone: set[Peer] = set()
        #: Messages with the epoch seconds of their arrival; None for the end of a connection.
        self._arrived: queue.SimpleQueue[tuple[Peer, Message | None, float]] = queue.SimpleQueue()
        self._thread = ControlThread(self.server, "headgate-doctor")

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._thread.close()

    def on_message(self, peer: Peer, message: Message) -> None:
        """Take a message; on the server's thread."""
        self._arrived.put((peer, message, time.time()))

    def on_lost(self, peer: Peer, error: Exception | None) -> None:
        """Take the end of a connection; on the server's thread."""
        del error
        self._arrived.put((peer, None, time.time()))

    def next(self, seconds: float) -> tuple[Peer, Message, float] | None:
        """Wait for a message for at most so long; return None if there is none yet."""
        try:
            peer, message, at = self._arrived.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if message is None:
            self.gone.add(peer)
            return None
        return peer, message, at

    def ask(self, questions: Mapping[Peer, Message], deadline: float) -> dict[Peer, Answer]:
        """Send a message to each of these tasks, and return the answers of those that answer in time.

        A connection without an answer is dropped: its task is stopped, or would answer the next message with this answer.

        Args:
            questions: by connection.
            deadline: on the monotonic clock.
        """
        sent = {}
        for peer, question in questions.items():
            sent[peer] = time.time()
            self._thread.call(partial(peer.send, question.kind, **question.fields))
        answers: dict[Peer, Answer] = {}
        while (late := questions.keys() - answers.keys() - self.gone) and (
            rest := deadline - time.monotonic()
        ) > 0:
            arrived = self.next(rest)
            if arrived is not None:
                peer, message, at = arrived
                if peer in late and message.kind == ANSWERS[questions[peer].kind]:
                    answers[peer] = Answer(message, sent[peer], at)
        for peer in late:
            self.gone.add(peer)
            self._thread.call(peer.drop)
        return answers


@dataclass(frozen=True, slots=True)
class Invited:
    """The tasks that are to take part.

    Attributes:
        names: of the executors that the tasks are meant for, by the numbers of the tasks.
        by_id: names of the executors by Spark's id of them.
        is_alone: True if all tasks are meant for one executor.
        failed: returns the errors of tasks that Spark says have failed, by their numbers.
    """

    names: Mapping[int, str]
    by_id: Mapping[str, str]
    is_alone: bool
    failed: Callable[[], Mapping[int, str]]


def examine(
    connections: Connections, invited: Invited, size: int, deadline: float
) -> tuple[Crew, dict[str, tuple[float, float]]]:
    """Exchange rows between all pairs of executors; return the results, and the clocks.

    Args:
        connections: of the tasks.
        invited: the tasks.
        size: bytes for each pair.
        deadline: on the monotonic clock; pairs without time stay unmeasured.
    """
    begin, names = time.monotonic(), invited.names
    members, busy = _gathered(connections, invited, begin + (deadline - begin) / 3)
    errors = {names[number]: text for number, text in invited.failed().items()}
    rounds = _Rounds(connections, members, size, deadline)
    joined = {member.name: f"{member.host}:{member.port}" for member in members}
    crew = Crew(
        driver=connections.address.host_port,
        invited=tuple(names.values()),
        joined=joined,
        errors=errors,
        busy=tuple(name for name in busy if name not in joined),
        pairs=rounds.run(),
        is_alone=invited.is_alone,
        traces=rounds.traces,
    )
    return crew, rounds.clocks


def _gathered(
    connections: Connections, invited: Invited, deadline: float
) -> tuple[list[Member], list[str]]:
    """Wait until each task has said where it is, has failed, or is late.

    Returns:
        A member for each executor, and the executors whose task is on another one.
    """
    heard: set[int] = set()
    members: dict[str, Member] = {}
    busy: list[str] = []
    while time.monotonic() < deadline and len(heard | invited.failed().keys()) < len(invited.names):
        arrived = connections.next(_LOOK)
        if arrived is None:
            continue
        peer, here, _ = arrived
        if here.kind != "HERE" or here["number"] not in invited.names:
            continue
        heard.add(here["number"])
        meant = name = invited.names[here["number"]]
        if not invited.is_alone:
            name = invited.by_id.get(here["executor"], meant)
        if name != meant:
            busy.append(meant)
        member = Member(peer, name, here["host"], here["port"], here["process"])
        members.setdefault(name, member)
    there = [members[name] for name in sorted(members)]
    return [member for member in there if member.peer not in connections.gone], busy


class _Rounds:
    """The exchange between all pairs of members, which have numbers.

    Args:
        connections: of the members.
        members: in the order of their names.
        size: bytes for each pair.
        deadline: on the monotonic clock.

    Attributes:
        clocks: executor -> seconds by which its clock is ahead, and half of the time that its answer travelled.
        traces: executor -> the last native events of its process, if it records any.
    """

    def __init__(
        self, connections: Connections, members: Sequence[Member], size: int, deadline: float
    ) -> None:
        self._connections = connections
        self._members = members
        self._size = size
        self._deadline = deadline
        self.clocks: dict[str, tuple[float, float]] = {}
        self.traces: dict[str, Sequence[str]] = {}
        #: By the numbers of writer and reader.
        self._pairs: dict[tuple[int, int], Pair] = {}

    def run(self) -> list[Pair]:
        """Measure as many pairs as there is time for; return all pairs."""
        number = len(self._members)
        self._dial()
        for step in range(1, number):
            seconds = min(_ROUND, self._deadline - time.monotonic() - _LATE)
            if seconds < _SHORTEST:
                break
            self._exchange(step, seconds)
        everyone = [((at + step) % number, at) for step in range(1, number) for at in range(number)]
        lost = "one of the two has ended, or did not answer"
        for pair in everyone:
            if pair not in self._pairs and self._is_gone(*pair):
                self._note(*pair, error=lost, code=PeerLostError.code)
            elif pair not in self._pairs:
                self._note(*pair)
        return [self._pairs[pair] for pair in everyone]

    def _is_gone(self, *numbers: int) -> bool:
        return any(self._members[number].peer in self._connections.gone for number in numbers)

    def _note(self, writer: int, reader: int, **values: Any) -> None:
        names = self._members[reader].name, self._members[writer].name
        self._pairs[writer, reader] = Pair(*names, **values)

    def _dial(self) -> None:
        """Let each member connect to each other one, and compare its clock."""
        seconds = max(0.0, min(_ANSWER, self._deadline - time.monotonic() - _LATE))
        peers = [[at, member.host, member.port] for at, member in enumerate(self._members)]
        questions = {
            member.peer: Message(
                "DIAL", {"peers": peers[:at] + peers[at + 1 :], "seconds": seconds}
            )
            for at, member in enumerate(self._members)
        }
        answers = self._connections.ask(questions, time.monotonic() + seconds + _LATE)
        for reader, member in enumerate(self._members):
            if member.peer not in answers:
                continue
            answer = answers[member.peer]
            dialed, travelled = (
                answer.message,
                answer.received - answer.sent - answer.message["took"],
            )
            self.clocks[member.name] = dialed["at"] - answer.sent - travelled / 2, travelled / 2
            for writer, error in dialed["errors"]:
                if writer < len(self._members):
                    self._note(writer, reader, error=error, code=ConnectError.code)

    def _exchange(self, step: int, seconds: float) -> None:
        """Let each member read from the one that is ``step`` further."""
        fields: dict[int, dict[str, Any]] = {}
        empty = {"size": self._size, "seconds": seconds, "read": None, "serve": None}
        pairs = [((at + step) % len(self._members), at) for at in range(len(self._members))]
        pairs = [pair for pair in pairs if pair not in self._pairs and not self._is_gone(*pair)]
        for writer, reader in pairs:
            partition, serving = os.urandom(16).hex(), self._members[writer]
            read = [serving.host, serving.port, serving.process, partition]
            fields.setdefault(reader, dict(empty))["read"] = read
            fields.setdefault(writer, dict(empty))["serve"] = partition
        questions = {
            self._members[at].peer: Message("EXCHANGE", values) for at, values in fields.items()
        }
        answers = self._connections.ask(questions, time.monotonic() + seconds + _LATE)
        for at in fields:
            answer = answers.get(self._members[at].peer)
            if answer is not None and answer.message["trace"]:
                self.traces[self._members[at].name] = answer.message["trace"]
        for writer, reader in pairs:
            answer = answers.get(self._members[reader].peer)
            if answer is not None:
                self._note(
                    writer,
                    reader,
                    **{n: answer.message[n] for n in ("rate", "link", "error", "code")},
                )
