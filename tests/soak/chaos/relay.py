"""A TCP relay in the driver's process: every connection through it can be cut, or get a flipped bit.

Each direction of a connection has a thread that blocks, so neither can hold up the other.
"""

import contextlib
import socket
import struct
import threading
import time

UP, DOWN = "up", "down"
_CHUNK = 16 * 1024


class Pair:
    """One connection through the relay: who dialed, and whom the relay dialed for it.

    Attributes:
        port: local port of the relay's own half, by which the far end knows this connection.
        passed: bytes so far, by direction.
        damaged: monotonic seconds at which the fault hit it, or None.
    """

    def __init__(self, near, far):
        self._ends = {UP: (near, far), DOWN: (far, near)}
        self.port = far.getsockname()[1]
        self.passed = {UP: 0, DOWN: 0}
        self.damaged = None
        self._is_closed = self._is_reset = False
        self._left = len(self._ends)
        self._wanted = None
        self._lock = threading.Lock()

    @property
    def is_open(self):
        """Whether bytes can still pass."""
        return not self._is_closed

    def cut(self, manner):
        """End both halves: ``end``, as a process does that closes them, or ``reset``."""
        with self._lock:
            if self._is_closed:
                return False
            self._is_closed = True
            self.damaged = time.monotonic()
            self._is_reset = manner == "reset"
            for sock, _ in self._ends.values():
                if self._is_reset:
                    # With nothing lingering a close is a reset. The last thread that uses it does
                    # that; this wakes the threads, and the other end hears nothing of it.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                _shut_down(sock, socket.SHUT_RD if self._is_reset else socket.SHUT_RDWR)
        return True

    def flip(self, direction, skip, bit):
        """Change one bit: of the byte that comes ``skip`` bytes from now in that direction."""
        with self._lock:
            self._wanted = (direction, self.passed[direction] + skip, bit)
        return not self._is_closed

    def forward(self, direction):
        """Pass on what comes until either end closes."""
        source, sink = self._ends[direction]
        try:
            while data := source.recv(_CHUNK):
                sink.sendall(self._changed(direction, data))
        except OSError:
            pass  # cut by us, or by either end
        finally:
            with self._lock:
                self._left -= 1
                last = self._left == 0
            if not self._is_reset:
                self.close()
            elif last:
                self.release()

    def close(self):
        """End both halves, as the end of a process would."""
        with self._lock:
            self._is_closed = True
            for sock, _ in self._ends.values():
                _shut_down(sock, socket.SHUT_RDWR)

    def release(self):
        """Give the descriptors back; no thread uses them any more."""
        for sock, _ in self._ends.values():
            sock.close()

    def _changed(self, direction, data):
        with self._lock:
            before = self.passed[direction]
            self.passed[direction] += len(data)
            if self._wanted is None or self._wanted[0] != direction:
                return data
            at = self._wanted[1] - before
            if not 0 <= at < len(data):
                return data
            changed = bytearray(data)
            changed[at] ^= 1 << self._wanted[2]
            self._wanted = None
            self.damaged = time.monotonic()
            return changed


class Relay:
    """Listens for one address and passes on what comes.

    Args:
        host: of the target.
        port: of the target.
    """

    def __init__(self, host, port):
        self._target = (host, port)
        self._listener = socket.create_server((host, 0), backlog=64)
        self._threads = []
        self.pairs = []
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)

    def _start(self, call, *args):
        thread = threading.Thread(target=call, args=args, name="chaos-relay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._target, 10)
            except OSError:
                near.close()  # the target is gone, as it would be without us
                continue
            for sock in (near, far):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(near, far)
            self.pairs.append(pair)
            self._start(pair.forward, UP)
            self._start(pair.forward, DOWN)

    def close(self):
        """Cut everything and wait for the threads."""
        _shut_down(
            self._listener, socket.SHUT_RDWR
        )  # a plain close would leave the thread in its call
        self._listener.close()
        for pair in list(self.pairs):
            pair.close()
        for thread in list(self._threads):
            thread.join(5)
        for pair in list(self.pairs):
            pair.release()


def _shut_down(sock, how):
    with contextlib.suppress(OSError):  # its other end hung up first
        sock.shutdown(how)
