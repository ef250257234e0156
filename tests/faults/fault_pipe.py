"""One direction of one connection through the proxy, and what all connections share."""

import socket
import struct
import threading
import time
from collections import deque

from tests.faults.fault import DAMAGES, ENDS

CHUNK = 65_536
#: Bytes that a pipe holds back at most; a sender waits then as it would for a slow peer.
HELD = 1 << 20
#: Of a receive buffer, where windows are to be small: the kernel doubles it.
SMALL_WINDOW = 2_048
#: Seconds after which a range that does not fill passes as it is: its sender waits for an answer.
PATIENCE = 0.2


class Ended(Exception):
    """The connection ends here, in the way of its kind."""

    def __init__(self, kind):
        super().__init__(kind)
        self.kind = kind

    @staticmethod
    def arm(sock):
        """Let the close of a socket be a reset."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class State:
    """What all connections of a proxy share."""

    def __init__(self, fault):
        self.fault = fault
        self.struck = False
        self.recorded = (bytearray(), bytearray())
        #: The number of the last order, and what it was: "cut" or "reset".
        self.order = (0, "")
        #: The bytes that the first connection had where the next one is spliced.
        self.spliced = None
        self._lock = threading.Lock()
        self.calm()

    def calm(self):
        """Forget what was told."""
        self.stalled, self.swallowing = set(), set()
        self.delays, self.rates = {}, {}

    def obey(self, orders):
        """End a connection that has seen fewer orders."""
        number, kind = self.order
        if number > orders:
            raise Ended(kind)

    def strike(self):
        """Return whether it is the caller whom the fault strikes: the first who asks."""
        with self._lock:
            first, self.struck = not self.struck, True
        return first

    def splice(self, data):
        """Return the bytes to splice in; nothing to the first who asks, whose bytes they are."""
        with self._lock:
            other, self.spliced = self.spliced, data
        return other


class Pipe:
    """Reads from one socket, writes to another one, lets the fault happen in between."""

    def __init__(self, state, direction, source, sink):
        self.source, self.sink = source, sink
        self._state, self._direction = state, direction
        fault = state.fault
        self._fault = fault if fault is not None and fault.direction == direction else None
        self._position = 0
        self._range = bytearray()
        self._range_since = 0.0
        #: Chunks with the time at which they are due.
        self._chunks = deque()
        self._held = 0
        self._ended = self._shut = False
        self._allowance, self._allowed_at = 0.0, time.monotonic()
        self._mine = False

    @property
    def done(self):
        """Its source has ended, and everything of it has been forwarded."""
        return self._ended and not self._chunks and not self._shut

    def wants_bytes(self):
        """Whether to read from the source."""
        stalled = self._direction in self._state.stalled or self._strikes("stall")
        return not self._ended and not stalled and self._held < HELD

    def has_bytes(self):
        """Whether to write to the sink."""
        if self._direction in self._state.stalled or not self._chunks:
            return False
        return self._chunks[0][0] <= time.monotonic() and self._allowed() >= 1

    def turn(self, readable, writable):
        """Take and give what is there.

        Raises:
            Ended: the fault ends the connection, after what came before it.
        """
        if readable:
            data = self.source.recv(CHUNK)
            if not data:
                self._flush_range()
                self._ended = True
            else:
                self._state.recorded[self._direction].extend(data)
                self._take(data)
        elif self._range and time.monotonic() > self._range_since + PATIENCE:
            self._flush_range()
        if writable and self._chunks:
            self._give()

    def _take(self, data):
        before, self._position = self._position, self._position + len(data)
        fault = self._fault
        if fault is None or (not before <= fault.offset < self._position and not self._range):
            self._push(data)
        elif fault.kind in DAMAGES:
            self._fill(data, fault.offset - before)
        elif fault.kind in ENDS:
            self._end(data, fault.offset - before, fault.kind)
        else:
            self._push(data[: fault.offset - before])
            self._mine = self._state.strike()
            pause = fault.seconds if self._mine and fault.kind == "pause" else 0.0
            self._push(data[fault.offset - before :], pause)

    def _fill(self, data, at):
        """Collect the range of the fault, and forward it damaged once it is there."""
        if not self._range:
            self._push(data[:at])
            data = data[at:]
            self._range_since = time.monotonic()
        missing = self._fault.span - len(self._range)
        self._range += data[:missing]
        if len(self._range) < self._fault.span:
            return
        whole, self._range = bytes(self._range), bytearray()
        self._push(self._damaged(whole))
        self._push(data[missing:])

    def _damaged(self, whole):
        if self._fault.kind == "splice":
            other = self._state.splice(whole)
            if other is None or not self._state.strike():
                return whole
            return self._fault.damaged(whole, other)
        return self._fault.damaged(whole) if self._state.strike() else whole

    def _end(self, data, at, kind):
        if not self._state.strike():
            self._push(data)
            return
        self._push(data[:at])
        self._deliver()
        if kind == "half-close":
            self.sink.shutdown(socket.SHUT_WR)
            self._shut = True
        else:
            raise Ended(kind)

    def _flush_range(self):
        held, self._range = bytes(self._range), bytearray()
        self._push(held)

    def _push(self, data, pause=0.0):
        swallowed = self._shut or self._direction in self._state.swallowing
        if not data or swallowed or self._strikes("black hole") or self._strikes("stall"):
            return
        delay = self._state.delays.get(self._direction, 0.0)
        if self._fault is not None and self._fault.kind == "delay":
            delay += self._fault.seconds
        self._chunks.append((time.monotonic() + delay + pause, bytes(data)))
        self._held += len(data)

    def _strikes(self, kind):
        return self._mine and self._fault.kind == kind

    def _allowed(self):
        """Bytes that may go now: as much as a tenth of a second's, when there is a rate."""
        rate = self._state.rates.get(self._direction, 0)
        if self._fault is not None and self._fault.kind == "throttle":
            rate = rate or self._fault.rate
        if not rate:
            return CHUNK
        now = time.monotonic()
        earned = self._allowance + rate * (now - self._allowed_at)
        self._allowance, self._allowed_at = min(earned, max(1.0, rate / 10)), now
        return int(self._allowance)

    def _give(self):
        due, data = self._chunks.popleft()
        sent = self.sink.send(data[: self._allowed()])
        self._allowance -= sent
        self._held -= sent
        if sent < len(data):
            self._chunks.appendleft((due, data[sent:]))

    def _deliver(self):
        """Write what is left before an end, as far as the peer takes it."""
        self.sink.setblocking(True)
        self.sink.settimeout(5)
        for _, data in self._chunks:
            self.sink.sendall(data)
        self._chunks.clear()
        self.sink.setblocking(False)
