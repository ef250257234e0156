"""A TCP proxy between two processes that causes faults, drawn from a seed or on command.

In a test::

    with FaultProxy("127.0.0.1", 4040, Fault.random(seed)) as proxy:
        connect(proxy.host, proxy.port)
        proxy.stall(TO_CLIENT)
        proxy.resume()

As a process. It prints its address, reads the commands `stall`, `resume`, `cut`, `reset`,
`black-hole`, `delay SECONDS` and `throttle RATE` from its standard input, one per line, and exits
at the end of the input::

    python -m tests.kit.fault_proxy --target localhost:4040 --seed 7

The kernel acknowledges bytes that the proxy does not forward. So to the sender a stalled connection
looks like a stopped peer, not like a cut cable.
"""

import argparse
import contextlib
import dataclasses
import secrets
import select
import socket
import sys
import threading

from tests.kit.fault_pipe import SMALL_WINDOW, Ended, Pipe, State
from tests.kit.faults import KINDS, TO_CLIENT, TO_TARGET, Fault

#: Seconds between two checks for commands and for chunks that are due.
TICK = 0.01
BOTH = (TO_TARGET, TO_CLIENT)


class FaultProxy:
    """Forwards all connections to one address, with at most one planned fault.

    Args:
        host: host of the target.
        port: port of the target.
        fault: the planned fault, or None.
        listen: address for the clients. Port 0 selects a free one.
    """

    def __init__(self, host, port, fault=None, listen=("127.0.0.1", 0)):
        self._target = (host, port)
        #: State of all connections: the planned fault, the commands, the bytes received.
        self.state = State(fault)
        self._small = fault is not None and fault.kind == "small windows"
        self._threads = []
        self._closed = False
        self._listener = socket.create_server(listen)
        if self._small:  # accepted connections inherit the listener's window
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        self.host, self.port = self._listener.getsockname()[:2]
        self._start(self._accept)

    def address(self, address):
        """Return a channel's address with the host and port of the proxy."""
        return dataclasses.replace(address, host=self.host, port=self.port)

    @property
    def passed(self):
        """Number of bytes received from all connections, by direction."""
        return tuple(len(bytes_) for bytes_ in self.recorded)

    @property
    def recorded(self):
        """Bytes received from all connections, by direction."""
        return self.state.recorded

    @property
    def struck(self):
        """True once the planned fault has happened."""
        return self.state.struck

    @property
    def dialed(self):
        """Number of connections that were forwarded so far."""
        return len(self._threads) - 1

    @property
    def connections(self):
        """Number of connections that are forwarded now."""
        return sum(thread.is_alive() for thread in self._threads[1:])

    def stall(self, direction=None):
        """Read no more bytes in one direction or both, so that the sender's window closes."""
        self.state.stalled.update(BOTH if direction is None else [direction])

    def black_hole(self, direction=None):
        """Read all bytes and forward none."""
        self.state.swallowing.update(BOTH if direction is None else [direction])

    def delay(self, seconds, direction=None):
        """Forward each chunk that many seconds later."""
        for each in BOTH if direction is None else [direction]:
            self.state.delays[each] = seconds

    def throttle(self, rate, direction=None):
        """Forward at most ``rate`` bytes per second on each connection."""
        for each in BOTH if direction is None else [direction]:
            self.state.rates[each] = rate

    def resume(self):
        """Forward normally again. The bytes that a black hole has read stay lost."""
        self.state.calm()

    def cut(self):
        """Close all connections, as the end of a process does."""
        self.state.order = (self.state.order[0] + 1, "cut")

    def reset(self):
        """Reset all connections."""
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
            except OSError:  # the target does not listen, so the client's connection ends too
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
        # One thread serves both directions, so that no other thread reads when a socket is closed.
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
        except OSError:  # one end is closed, so the other one is closed as well
            return
        finally:
            client.close()
            target.close()

    def close(self):
        """Close all connections and end all threads."""
        self._closed = True
        # Without the shutdown the accepting thread would stay blocked in `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def obey(proxy, line):
    """Run one command line, such as "delay 0.2"."""
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
        "--seed", type=int, default=None, help="seed of the fault; a new one if not given"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of faults to draw from")
    parser.add_argument("--calm", action="store_true", help="no fault but those on command")
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
