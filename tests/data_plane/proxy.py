"""A TCP proxy in this process that damages what passes through it."""

import dataclasses
import select
import socket
import struct
import threading
from typing import NamedTuple

TO_PRODUCER, TO_CONSUMER = 0, 1


class Damage(NamedTuple):
    """One fault at one byte of one direction."""

    direction: int
    offset: int
    #: "flip", "cut" (end of stream, both directions) or "reset".
    kind: str
    bit: int = 0


class Proxy:
    """Forwards connections to a producer, each in a thread, with at most one damage in all."""

    def __init__(self, address, damage=None):
        self._target = (address.host, address.port)
        self._damage = damage
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = []
        self._closed = False
        #: Bytes that passed in each direction.
        self.passed = [0, 0]
        #: The bytes themselves.
        self.recorded = [bytearray(), bytearray()]
        self._start(self._accept)

    def address(self, address):
        """Return the address through the proxy."""
        host, port = self._listener.getsockname()
        return dataclasses.replace(address, host=host, port=port)

    def _start(self, call, *args):
        thread = threading.Thread(target=call, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                consumer, _ = self._listener.accept()
            except OSError:  # closed
                return
            producer = socket.create_connection(self._target)
            self._start(self._forward, consumer, producer)

    def _forward(self, consumer, producer):
        # One thread for both directions, so that a close is a close: nobody else reads there.
        peers = {consumer: (producer, TO_PRODUCER), producer: (consumer, TO_CONSUMER)}
        try:
            while not self._closed:
                for source in select.select(list(peers), [], [], 0.05)[0]:
                    if not self._pass(source, *peers[source]):
                        return
        except OSError:  # one end is gone, so the other is cut off as well
            return
        finally:
            consumer.close()
            producer.close()

    def _pass(self, source, sink, direction):
        data = source.recv(65536)
        if not data:
            return False
        damage, before = self._damage, self.passed[direction]
        self.passed[direction] += len(data)
        self.recorded[direction] += data
        at = -1 if damage is None or damage.direction != direction else damage.offset - before
        if not 0 <= at < len(data):
            sink.sendall(data)
            return True
        if damage.kind == "flip":
            changed = bytearray(data)
            changed[at] ^= 1 << damage.bit
            sink.sendall(changed)
            return True
        sink.sendall(data[:at])
        if damage.kind == "reset":
            for sock in (source, sink):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def close(self):
        self._closed = True
        # A plain close would leave the accepting thread in its call.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
