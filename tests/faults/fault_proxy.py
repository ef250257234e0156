"""A TCP proxy between any two processes that lets faults happen, by a seed or when it is told.

In a test::

    with FaultProxy("127.0.0.1", 4040, Fault.random(seed)) as proxy:
        connect(proxy.host, proxy.port)
        proxy.stall(TO_CLIENT)
        proxy.resume()

As a process of its own, which says where it listens, takes `stall`, `resume`, `cut`, `reset`,
`black-hole`, `delay SECONDS` and `throttle RATE` line by line, and ends with its standard input::

    python -m tests.faults.fault_proxy --target localhost:4040 --seed 7

It cannot keep the kernel from acknowledging what it does not forward: to the sender a stalled
connection looks like a peer that has stopped, not like a cable that is cut.
"""

import argparse
import contextlib
import dataclasses
import secrets
import select
import socket
import sys
import threading

from tests.faults.fault import KINDS, TO_CLIENT, TO_TARGET, Fault
from tests.faults.fault_pipe import SMALL_WINDOW, Ended, Pipe, State

#: Seconds between two looks at what it was told and at what is due.
TICK = 0.01
BOTH = (TO_TARGET, TO_CLIENT)


class FaultProxy:
    """Forwards all connections to one address; at most one planned fault happens to them.

    Args:
        host: where the real one listens.
        port: its port.
        fault: what is to happen, or nothing.
        listen: the address for the clients; port 0 is any free one.
    """

    def __init__(self, host, port, fault=None, listen=("127.0.0.1", 0)):
        self._target = (host, port)
        #: What all connections share: the plan, what was told, what has passed.
        self.state = State(fault)
        self._small = fault is not None and fault.kind == "small windows"
        self._threads = []
        self._closed = False
        self._listener = socket.create_server(listen)
        if self._small:  # the window of a connection is the listener's
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        self.host, self.port = self._listener.getsockname()[:2]
        self._start(self._accept)

    def address(self, address):
        """Return the same address of a channel, but through here."""
        return dataclasses.replace(address, host=self.host, port=self.port)

    @property
    def passed(self):
        """Bytes that came in, by direction, of all connections."""
        return tuple(len(bytes_) for bytes_ in self.recorded)

    @property
    def recorded(self):
        """The bytes that came in, by direction, of all connections."""
        return self.state.recorded

    @property
    def struck(self):
        """Whether the planned fault has happened."""
        return self.state.struck

    @property
    def connections(self):
        """How many are forwarded now."""
        return sum(thread.is_alive() for thread in self._threads[1:])

    def stall(self, direction=None):
        """Take no more bytes: the sender's window closes. Of one direction, or of both."""
        self.state.stalled.update(BOTH if direction is None else [direction])

    def black_hole(self, direction=None):
        """Take all bytes and forward none."""
        self.state.swallowing.update(BOTH if direction is None else [direction])

    def delay(self, seconds, direction=None):
        """Forward each chunk so much later."""
        for each in BOTH if direction is None else [direction]:
            self.state.delays[each] = seconds

    def throttle(self, rate, direction=None):
        """Forward at most so many bytes in a second, on each connection."""
        for each in BOTH if direction is None else [direction]:
            self.state.rates[each] = rate

    def resume(self):
        """Forward as if nothing had been; what a black hole has taken stays lost."""
        self.state.calm()

    def cut(self):
        """End all connections as a process does that ends."""
        self.state.order = (self.state.order[0] + 1, "cut")

    def reset(self):
        """End all connections with a reset."""
        self.state.order = (self.state.order[0] + 1, "reset")

    def _start(self, call, *args):
        thread = threading.Thread(target=call, args=args, name="fault-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                target = self._connect()
            except OSError:  # nobody is there, so the client is told the same
                client.close()
                continue
            self._start(self._forward, client, target)

    def _connect(self):
        target = socket.socket(socket.AF_INET)
        if self._small:
            target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        try:
            target.settimeout(10)
            target.connect(self._target)
        except OSError:
            target.close()
            raise
        return target

    def _forward(self, client, target):
        # One thread for both directions, so that a close is a close: nobody else reads there.
        for sock in (client, target):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipes = (
            Pipe(self.state, TO_TARGET, client, target),
            Pipe(self.state, TO_CLIENT, target, client),
        )
        orders = self.state.order[0]
        try:
            while not self._closed and not any(pipe.done for pipe in pipes):
                self.state.obey(orders)
                reading = [pipe.source for pipe in pipes if pipe.wants_bytes()]
                writing = [pipe.sink for pipe in pipes if pipe.has_bytes()]
                readable, writable, _ = select.select(reading, writing, [], TICK)
                for pipe in pipes:
                    pipe.turn(pipe.source in readable, pipe.sink in writable)
        except Ended as end:
            if end.kind == "reset":
                for sock in (client, target):
                    end.arm(sock)
        except OSError:  # one end is gone, so the other is cut off as well
            return
        finally:
            client.close()
            target.close()

    def close(self):
        """Cut everything and end all threads."""
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


def obey(proxy, line):
    """Do what a line says, such as "delay 0.2"."""
    name, *arguments = line.split()
    calls = {
        "stall": proxy.stall,
        "resume": proxy.resume,
        "cut": proxy.cut,
        "reset": proxy.reset,
        "black-hole": proxy.black_hole,
        "delay": lambda seconds: proxy.delay(float(seconds)),
        "throttle": lambda rate: proxy.throttle(int(rate)),
    }
    calls[name](*arguments)


def main(arguments=None):
    """Forward until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the fault; a new one if not given"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="of faults to draw from")
    parser.add_argument("--calm", action="store_true", help="no fault but what it is told")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    fault = None if given.calm else Fault.random(seed, given.kinds.split(","))
    host, port = given.target.rsplit(":", 1)
    listen_host, listen_port = given.listen.rsplit(":", 1)
    with FaultProxy(host, int(port), fault, (listen_host, int(listen_port))) as proxy:
        print(f"listening {proxy.host}:{proxy.port} seed {seed} {fault}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            for line in sys.stdin:
                try:
                    obey(proxy, line)
                    print(f"done {line.strip()}", flush=True)
                except (IndexError, KeyError, TypeError, ValueError) as error:
                    print(f"not done {line.strip()}: {error!r}", flush=True)


if __name__ == "__main__":
    main()
