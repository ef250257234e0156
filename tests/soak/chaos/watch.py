"""Watches the coordinator of this process: its members, its messages, the first cause.

It hooks into the messages that the coordinator receives and the effects that it returns, which
every version of the coordinator has.
"""

import threading
import time
from dataclasses import dataclass, field, replace

from tests.soak.chaos import remains
from tests.soak.chaos.judge import Said
from tests.soak.chaos.relay import Relay

from headgate.errors import CancelledError


@dataclass(slots=True)
class Seen:
    """One task that has registered; ``port`` is its end of the control connection."""

    role: str
    partition: int
    attempt: int
    connection: int
    port: int
    epoch: int = 0


@dataclass(slots=True)
class Story:
    """The events of one run. Times are monotonic seconds."""

    #: Time at which the first cause was known, and that cause.
    noticed: float | None = None
    cause: Said | None = None
    #: Every different code and summary, in order.
    causes: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    epochs: int = 0


class Watch:
    """Watches one application. :meth:`begin` starts a story and sets the relays for its fault.

    Args:
        owner: the application, from ``headgate.spark.driver.application.of``.
    """

    def __init__(self, owner):
        self._owner = owner
        self._server = owner._server
        self._real_port = owner.port
        self._tasks = {}
        #: Exchange of each connection, and exchanges of earlier stories, whose tasks may be late.
        self._exchanges = {}
        self._earlier = set()
        self._relays = {}
        self._relays_data = False
        self._moment = None
        self.reached = threading.Event()
        self.story = Story()
        self.control = None
        coordinator = self._server.coordinator
        self._message, self._take = coordinator.message, coordinator.take_effects
        coordinator.message, coordinator.take_effects = self._came, self._goes
        self._closed = coordinator.closed
        coordinator.closed = self._left
        self._depth = 0

    def is_of(self, owner):
        """Return True if this is the watched application."""
        return self._owner is owner

    def begin(self, plan):
        """Start a new story. Tasks of new exchanges go through relays if the fault needs it."""
        self.end()
        self._earlier.update(self._exchanges.values())
        self.story = Story()
        self.reached.clear()
        self._moment = plan.moment if plan.moment.kind == "message" else None
        self._relays_data = plan.kind in {"cut data", "flip data"}
        if plan.kind in {"cut control", "flip control"}:
            self.control = Relay(self._owner.host, self._real_port)
            self._owner.port = self.control.port

    def end(self):
        """Close the relays."""
        self._owner.port = self._real_port
        self._moment, self._relays_data = None, False
        for relay in [*self._relays.values(), *([self.control] if self.control else [])]:
            relay.close()
        self._relays, self.control = {}, None

    def tasks(self, role):
        """Return the connected tasks of a role, sorted by partition."""
        found = [task for task in list(self._tasks.values()) if task.role == role]
        return sorted(found, key=lambda task: (task.partition, task.attempt))

    def processes(self, role, token):
        """Return the worker processes that run the tasks of a role."""
        workers = [p for p in remains.of(token) if p.kind == "worker"]
        peer = self._real_port
        found = [remains.owner_of_port(t.port, peer, workers) for t in self.tasks(role)]
        return [process for process in found if process is not None]

    def data_pairs(self):
        """Return the open connections between consumers and producers."""
        return [pair for r in list(self._relays.values()) for pair in list(r.pairs) if pair.is_open]

    def control_pairs(self, role):
        """Return the open control connections of the tasks of a role."""
        ports = [task.port for task in self.tasks(role)]
        pairs = {pair.port: pair for pair in list(self.control.pairs) if pair.is_open}
        return [pairs[port] for port in ports if port in pairs]

    def remains(self):
        """Return a line for each resource that the coordinator still holds."""
        coordinator = self._server.coordinator
        held = {
            "members": coordinator.members,
            "runs": coordinator.runs,
            "live runs": coordinator.live_runs,
            "connections": self._server._connections,
        }
        return [f"{len(things)} {name}" for name, things in held.items() if things]

    # Called in the coordinator's thread.

    def _came(self, connection, exchange_id, message, now):
        self._exchanges[connection] = exchange_id
        if exchange_id in self._earlier:
            self._message(connection, exchange_id, message, now)
            return
        if message.kind in {"CONSUMER", "PRODUCER"}:
            sock = self._server._connections[connection].sock
            self._tasks[connection] = Seen(
                message.kind.lower(),
                message["partition"],
                message["attempt"],
                connection,
                sock.getpeername()[1],
                message.epoch,
            )
        if message.kind == "REGISTERED" and self._relays_data:
            message = self._through_relay(message)
        self._count(message.kind)
        self._message(connection, exchange_id, message, now)

    def _through_relay(self, message):
        place = (message["host"], message["port"])
        relay = self._relays.get(place) or Relay(*place)
        self._relays[place] = relay
        return replace(message, fields={**message.fields, "port": relay.port})

    def _left(self, connection, error=None):
        self._tasks.pop(connection, None)
        self._closed(connection, error)

    def _goes(self):
        self._depth += 1
        try:
            effects = self._take()
        finally:
            self._depth -= 1
        if self._depth == 0:  # the end of a run makes the coordinator call itself
            for effect in effects:
                self._effect(effect)
        return effects

    def _effect(self, effect):
        message, cause = getattr(effect, "message", None), getattr(effect, "cause", None)
        if self._exchange(effect) in self._earlier:
            return
        if message is not None:
            self._count(message.kind)
            self.story.epochs = max(self.story.epochs, message.epoch)
            if message.kind == "ABORT":
                self._caused(message["code"], message["summary"], message["text"])
        elif cause is not None:
            self._caused(cause.code, cause.summary, cause.text)

    def _exchange(self, effect):
        if hasattr(effect, "connection"):
            return self._exchanges.get(effect.connection)
        return getattr(getattr(effect, "run", None), "exchange_id", None)

    def _caused(self, code, summary, text):
        if code == CancelledError.code:
            return  # a consequence of another event, such as the early end of a stage
        story = self.story
        if story.cause is None:
            story.noticed = time.monotonic()
            story.cause = Said(code, summary, f"{summary}\n{text}")
        if (code, summary) not in story.causes:
            story.causes.append((code, summary))

    def _count(self, kind):
        counts = self.story.counts
        counts[kind] = counts.get(kind, 0) + 1
        moment = self._moment
        if moment is not None and kind == moment.name and counts[kind] >= moment.at:
            self.reached.set()
