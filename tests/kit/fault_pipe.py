"""One direction of one connection through the proxy, and the state that all connections share."""

import socket
import struct
import threading
import time
from collections import deque

from tests.kit.faults import DAMAGES, ENDS

CHUNK = 65_536
#: Maximum number of bytes that a pipe holds. The sender then waits as it does for a slow peer.
HELD = 1 << 20
#: Bytes of a receive buffer with the fault "small windows". The kernel doubles it.
SMALL_WINDOW = 2_048
#: Seconds after which an incomplete range passes unchanged, as its sender may wait for an answer.
PATIENCE = 0.2


class Ended(Exception):
    """The fault ends the connection in the way that `kind` names."""

    def __init__(self, kind):
        super().__init__(kind)
        self.kind = kind

    @staticmethod
    def arm(sock):
        """Make the close of a socket a reset."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class State:
    """The state that all connections of a proxy share."""

    def __init__(self, fault):
        self.fault = fault
        self.struck = False
        self.recorded = (bytearray(), bytearray())
        #: Number and kind of the last order, "cut" or "reset".
        self.order = (0, "")
        #: Bytes of the first connection, to be spliced into the next one.
        self.spliced = None
        self._lock = threading.Lock()
        self.calm()

    def calm(self):
        """End all stalls, black holes, delays and throttles."""
        self.stalled, self.swallowing = set(), set()
        self.delays, self.rates = {}, {}

    def obey(self, orders):
        """End a connection that began before the last order.

        Args:
            orders: number of the last order when the connection began.
        """
        number, kind = self.order
        if number > orders:
            raise Ended(kind)

    def strike(self):
        """Return True to the first caller, which the fault strikes, and False to all others."""
        with self._lock:
            first, self.struck = not self.struck, True
        return first

    def splice(self, data):
        """Store the caller's bytes and return those of the caller before; None to the first."""
        with self._lock:
            other, self.spliced = self.spliced, data
        return other


class Pipe:
    """Reads from one socket, applies the fault, and writes to another socket."""

    def __init__(self, state, direction, source, sink):
        self.source, self.sink = source, sink
        self._state, self._direction = state, direction
        fault = state.fault
        self._fault = fault if fault is not None and fault.direction == direction else None
        self._position = 0
        self._range = bytearray()
        self._range_since = 0.0
        #: (due time, bytes) of each chunk.
        self._chunks = deque()
        self._held = 0
        self._ended = self._shut = False
        self._allowance, self._allowed_at = 0.0, time.monotonic()
        self._mine = False

    @property
    def done(self):
        """True once the source has ended and all of its bytes were forwarded."""
        return self._ended and not self._chunks and not self._shut

    def wants_bytes(self):
        """Return True if the pipe can take bytes from its source."""
        stalled = self._direction in self._state.stalled or self._strikes("stall")
        return not self._ended and not stalled and self._held < HELD

    def has_bytes(self):
        """Return True if bytes are due for the sink."""
        if self._direction in self._state.stalled or not self._chunks:
            return False
        return self._chunks[0][0] <= time.monotonic() and self._allowed() >= 1

    def turn(self, readable, writable):
        """Read from the source if it is readable, and write to the sink if it is writable.

        Raises:
            Ended: the fault ends the connection; the bytes before the fault were forwarded.
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
        """Collect the range of the fault, and forward it damaged once it is complete."""
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
        """Return the number of bytes that may go now: with a rate, at most those of 0.1 s."""
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
        """Write the remaining chunks before the connection ends."""
        self.sink.setblocking(True)
        self.sink.settimeout(5)
        for _, data in self._chunks:
            self.sink.sendall(data)
        self._chunks.clear()
        self.sink.setblocking(False)
