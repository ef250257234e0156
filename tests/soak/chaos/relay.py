"""A TCP relay in the driver's process that can cut a connection or flip a bit in it.

Each direction of a connection has a thread of its own, so neither blocks the other.
"""

import contextlib
import socket
import struct
import threading
import time

UP, DOWN = "up", "down"
_CHUNK = 16 * 1024


class Pair:
    """One connection through the relay: the socket of the client and the socket to the target.

    Attributes:
        port: local port of the socket to the target, which identifies the connection there.
        passed: bytes passed so far, by direction.
        damaged: monotonic seconds at which the fault hit the connection, or None.
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
        """True while bytes can pass."""
        return not self._is_closed

    def cut(self, manner):
        """End both sockets: ``end``, as a normal close does, or ``reset``."""
        with self._lock:
            if self._is_closed:
                return False
            self._is_closed = True
            self.damaged = time.monotonic()
            self._is_reset = manner == "reset"
            for sock, _ in self._ends.values():
                if self._is_reset:
                    # With a linger time of 0 a close is a reset. The last thread that uses the
                    # socket closes it. This call only wakes the threads and sends nothing.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                _shut_down(sock, socket.SHUT_RD if self._is_reset else socket.SHUT_RDWR)
        return True

    def flip(self, direction, skip, bit):
        """Flip one bit of the byte that follows after ``skip`` more bytes in that direction."""
        with self._lock:
            self._wanted = (direction, self.passed[direction] + skip, bit)
        return not self._is_closed

    def forward(self, direction):
        """Pass bytes on until either end closes."""
        source, sink = self._ends[direction]
        try:
            while data := source.recv(_CHUNK):
                sink.sendall(self._changed(direction, data))
        except OSError:
            pass  # the relay or an end has cut the connection
        finally:
            with self._lock:
                self._left -= 1
                last = self._left == 0
            if not self._is_reset:
                self.close()
            elif last:
                self.release()

    def close(self):
        """Close both sockets normally."""
        with self._lock:
            self._is_closed = True
            for sock, _ in self._ends.values():
                _shut_down(sock, socket.SHUT_RDWR)

    def release(self):
        """Close the descriptors once no thread uses them."""
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
    """Listens on behalf of one address and passes all bytes on.

    Args:
        host: host of the target.
        port: port of the target.
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
                near.close()  # the target does not listen, so the client's connection ends too
                continue
            for sock in (near, far):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(near, far)
            self.pairs.append(pair)
            self._start(pair.forward, UP)
            self._start(pair.forward, DOWN)

    def close(self):
        """Cut all connections and wait for the threads."""
        # Without the shutdown the accepting thread would stay blocked in `accept`.
        _shut_down(self._listener, socket.SHUT_RDWR)
        self._listener.close()
        # Only the accepting thread starts others.
        self._threads[0].join(5)
        for pair in list(self.pairs):
            pair.close()
        for thread in self._threads:
            thread.join(5)
        for pair in list(self.pairs):
            pair.release()


def _shut_down(sock, how):
    with contextlib.suppress(OSError):  # the other end has closed before
        sock.shutdown(how)
