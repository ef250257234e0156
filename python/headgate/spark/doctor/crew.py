"""The doctor's end of the exchange between pairs of executors: one loop, no thread, nothing left behind.

The tasks connect to it, and do what it says, pair by pair: in round ``r`` the task ``i`` reads from the task ``i + r``.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate._closing import Closing
from headgate.control.link import CoordinatorLink
from headgate.control.newcomers import Newcomers
from headgate.control.place import Place
from headgate.errors import ConnectError, HeadgateError, PeerLostError
from headgate.spark.doctor.context import Crew, Pair
from headgate.spark.doctor.wire import JsonCodec
from headgate.spark.driver.listener import Listener

if TYPE_CHECKING:
    from headgate.spark.doctor.wire import Message

#: Seconds between two looks at Spark while tasks are awaited.
_LOOK: Final = 0.1
#: Most seconds for a simple question, and for one round of pairs; a round needs this much time left.
_ANSWER: Final = 15.0
_ROUND: Final = 15.0
_SHORTEST: Final = 1.0
#: Most seconds that a task may answer late.
_LATE: Final = 3.0
#: Seconds in which a stranger has to prove that it is a task.
_HANDSHAKE: Final = 12.0
_CHUNK: Final = 64 * 1024


@dataclass(eq=False, slots=True)
class Member:
    """A connection.

    Attributes:
        sock: of the task.
        host: address of the task.
        link: authenticates it.
        deadline: of its proof, on the monotonic clock.
        name: of the executor; empty until it has said so.
        here: its first message.
        heard: messages that nobody has taken.
        is_gone: True once it has ended.
    """

    sock: socket.socket
    host: str
    link: CoordinatorLink[Message]
    deadline: float
    name: str = ""
    here: Message = field(default_factory=dict)
    heard: list[Message] = field(default_factory=list)
    is_gone: bool = False

    @property
    def address(self) -> tuple[str, int]:
        """Where its data plane listens."""
        return str(self.here["host"]), int(self.here["port"])


@dataclass(frozen=True, slots=True)
class Answer:
    """A member's answer.

    Attributes:
        message: of the member.
        sent: epoch seconds at which it was asked.
        received: epoch seconds at which the answer was there.
    """

    message: Message
    sent: float
    received: float


class Post(Closing):
    """The connections of the doctor's tasks; close it.

    Args:
        bind_host: address to listen on.
        host: the driver's address for executors.
        timeout: seconds in which a task must reach the driver.
        tls: True if the connections are encrypted.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, bind_host: str, host: str, timeout: float, *, tls: bool) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = Listener(bind_host, self._selector, None)
        port = self._listener.port
        secret, name = os.urandom(32), os.urandom(16)
        self.place = Place(host, port, name, secret, timeout=timeout, tls=tls)
        self._keys = {name: self.place.key()}
        self._members: list[Member] = []
        self._newcomers = Newcomers[Member]()

    def close(self) -> None:
        """Close all connections, which ends the tasks. May be called twice."""
        for member in list(self._members):
            self._drop(member)
        self._selector.close()
        self._listener.close()

    def pump(self, seconds: float) -> list[Member]:
        """Read and write for at most so long; return members that have something to say."""
        for key, _ in self._selector.select(self._listener.timeout(max(0.0, seconds))):
            if key.data is None:
                self._accept()
            elif not key.data.is_gone:
                self._serve(key.data)
        now = time.monotonic()
        self._listener.tick(now)
        for member in [one for one in self._members if one.deadline < now]:
            if not member.link.established:
                self._drop(member)
        return [member for member in self._members if member.heard]

    def tell(self, member: Member, message: Message) -> None:
        """Send a message; a member that is gone gets none."""
        if not member.is_gone:
            member.link.send(message)
            self._flush(member)

    def asked(self, messages: Mapping[Member, Message], deadline: float) -> dict[Member, Answer]:
        """Send each member a message, and return the answers of those that answer in time.

        A member that does not is dropped: it is stopped, or would answer the next message with this answer.

        Args:
            messages: by member.
            deadline: on the monotonic clock.
        """
        sent = {}
        for member, message in messages.items():
            member.heard.clear()
            sent[member] = time.time()
            self.tell(member, message)
        answers: dict[Member, Answer] = {}
        while time.monotonic() < deadline:
            waited = [one for one in messages if one not in answers and not one.is_gone]
            if not waited:
                break
            self.pump(min(_LOOK, deadline - time.monotonic()))
            for member in waited:
                for message in member.heard:
                    if message["do"] == messages[member]["do"]:
                        answers[member] = Answer(message, sent[member], time.time())
                member.heard.clear()
        for member in messages:
            if member not in answers:
                self._drop(member)
        return answers

    def _accept(self) -> None:
        now = time.monotonic()
        accepted = self._listener.accept(now)
        if accepted is None:
            return
        sock, host = accepted
        sock.setblocking(False)
        link = CoordinatorLink(self._keys.get, JsonCodec())
        member = Member(sock, host, link, now + _HANDSHAKE)
        self._members.append(member)
        self._selector.register(sock, selectors.EVENT_READ, member)
        self._make_room(self._newcomers.came(member, host))

    def _make_room(self, crowded_out: Member | None) -> None:
        # A task that is closed so dials again.
        if crowded_out is not None:
            self._drop(crowded_out)

    def _serve(self, member: Member) -> None:
        try:
            data = member.sock.recv(_CHUNK)
            if not data:
                self._drop(member)
                return
            had_named = member.link.has_named
            member.heard += member.link.receive(data)
            if member.link.established:
                self._newcomers.left(member, member.host)
            elif member.link.has_named and not had_named:
                self._make_room(self._newcomers.named(member, member.host))
        except BlockingIOError:
            pass  # only writing was possible
        except (OSError, HeadgateError):
            self._drop(member)  # gone, or a stranger
            return
        self._flush(member)

    def _flush(self, member: Member) -> None:
        try:
            while member.link.pending:
                member.link.written(member.sock.send(member.link.output()))
        except BlockingIOError:
            pass  # the selector says when to go on
        except OSError:
            self._drop(member)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.link.pending else 0)
        self._selector.modify(member.sock, events, member)

    def _drop(self, member: Member) -> None:
        if not member.is_gone:
            member.is_gone = True
            self._newcomers.left(member, member.host)
            self._members.remove(member)
            self._selector.unregister(member.sock)
            member.sock.close()


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
    post: Post, invited: Invited, size: int, deadline: float
) -> tuple[Crew, dict[str, tuple[float, float]]]:
    """Exchange rows between all pairs of executors; return what was found, and the clocks.

    Args:
        post: where the tasks connect.
        invited: the tasks.
        size: bytes for each pair.
        deadline: on the monotonic clock; pairs without time stay unmeasured.
    """
    begin, names = time.monotonic(), invited.names
    members, busy = _gathered(post, invited, begin + (deadline - begin) / 3)
    errors = {names[number]: text for number, text in invited.failed().items()}
    clocks = _clocks(post, members, min(deadline, time.monotonic() + _ANSWER))
    rounds = _Rounds(post, [one for one in members if not one.is_gone], size, deadline)
    joined = {one.name: "{}:{}".format(*one.address) for one in members}
    crew = Crew(
        driver=post.place.address,
        invited=tuple(names.values()),
        joined=joined,
        errors=errors,
        busy=tuple(name for name in busy if name not in joined),
        pairs=rounds.run(),
        is_alone=invited.is_alone,
    )
    return crew, clocks


def _gathered(post: Post, invited: Invited, deadline: float) -> tuple[list[Member], list[str]]:
    """Wait until each task has said where it is, has failed, or is late.

    Returns:
        A member for each executor, and the executors whose task is on another one.
    """
    heard: set[int] = set()
    found: dict[str, Member] = {}
    busy: list[str] = []
    while time.monotonic() < deadline and len(heard | invited.failed().keys()) < len(invited.names):
        for member in post.pump(_LOOK):
            for message in member.heard:
                number = message.get("number")
                if not (_is_sound(message) and isinstance(number, int) and number in invited.names):
                    continue
                heard.add(number)
                meant = name = invited.names[number]
                if not invited.is_alone:
                    name = invited.by_id.get(str(message.get("executor")), meant)
                if name != meant:
                    busy.append(meant)
                member.name, member.here = name, message
                found.setdefault(name, member)
            member.heard.clear()
    return [found[name] for name in sorted(found) if not found[name].is_gone], busy


def _is_sound(here: Message) -> bool:
    is_address = isinstance(here.get("host"), str) and isinstance(here.get("port"), int)
    return here["do"] == "here" and is_address and isinstance(here.get("process"), str)


def _clocks(
    post: Post, members: Iterable[Member], deadline: float
) -> dict[str, tuple[float, float]]:
    """Return by how many seconds each clock is ahead, and half of the time that the answer took."""
    found = {}
    for member, answer in post.asked({one: {"do": "time"} for one in members}, deadline).items():
        at = answer.message.get("at")
        if isinstance(at, int | float) and abs(at) < 1e12:
            middle = (answer.sent + answer.received) / 2
            found[member.name] = (at - middle, (answer.received - answer.sent) / 2)
    return found


class _Rounds:
    """The exchange between all pairs of members, which have numbers.

    Args:
        post: where the members are connected.
        members: in the order of their names.
        size: bytes for each pair.
        deadline: on the monotonic clock.
    """

    def __init__(self, post: Post, members: list[Member], size: int, deadline: float) -> None:
        self._post = post
        self._members = members
        self._size = size
        self._deadline = deadline
        #: By the numbers of writer and reader.
        self._found: dict[tuple[int, int], Pair] = {}

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
        for writer, reader in everyone:
            if (writer, reader) in self._found:
                continue
            if self._members[writer].is_gone or self._members[reader].is_gone:
                said = "one of the two has ended, or did not answer"
                self._note(writer, reader, error=said, code=PeerLostError.code)
            else:
                self._note(writer, reader)
        return [self._found[pair] for pair in everyone]

    def _note(self, writer: int, reader: int, **values: Any) -> None:
        names = self._members[reader].name, self._members[writer].name
        self._found[writer, reader] = Pair(*names, **values)

    def _dial(self) -> None:
        """Let each member connect to each other one."""
        number = len(self._members)
        seconds = max(0.0, min(_ANSWER, self._deadline - time.monotonic() - _LATE))
        peers = [[at, *member.address] for at, member in enumerate(self._members)]
        questions: dict[Member, Message] = {
            member: {"do": "dial", "peers": peers[:at] + peers[at + 1 :], "seconds": seconds}
            for at, member in enumerate(self._members)
        }
        answers = self._post.asked(questions, time.monotonic() + seconds + _LATE)
        for reader, member in enumerate(self._members):
            refused = answers[member].message.get("errors") if member in answers else None
            for name, error in (refused if isinstance(refused, dict) else {}).items():
                if str(name).isdecimal() and int(name) < number:
                    self._note(int(name), reader, error=str(error), code=ConnectError.code)

    def _exchange(self, step: int, seconds: float) -> None:
        """Let each member read from the one that is ``step`` further."""
        writers = {}
        for reader, member in enumerate(self._members):
            writer = (reader + step) % len(self._members)
            is_gone = member.is_gone or self._members[writer].is_gone
            if not is_gone and (writer, reader) not in self._found:
                writers[reader] = writer
        question: Message = {"do": "exchange", "size": self._size, "seconds": seconds}
        questions: dict[Member, Message] = {}
        for reader, writer in writers.items():
            partition = os.urandom(16).hex()
            other = self._members[writer]
            address = dict(zip(("host", "port"), other.address, strict=True))
            read = {**address, "process": other.here["process"], "partition": partition}
            for member, part in (
                (self._members[reader], {"read": read}),
                (other, {"serve": partition}),
            ):
                before = questions.get(member, {**question, "read": None, "serve": ""})
                questions[member] = {**before, **part}
        answers = self._post.asked(questions, time.monotonic() + seconds + _LATE)
        for reader, writer in writers.items():
            if self._members[reader] in answers:
                self._hear(writer, reader, answers[self._members[reader]].message)

    def _hear(self, writer: int, reader: int, message: Message) -> None:
        rate, error = message.get("rate"), message.get("error")
        if isinstance(error, str) and error:
            self._note(writer, reader, error=error, code=str(message.get("code") or ""))
        elif isinstance(rate, int | float) and 0 <= rate < float("inf"):
            self._note(writer, reader, rate=float(rate), link=str(message.get("link") or ""))
