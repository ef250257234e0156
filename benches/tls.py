"""One channel between two processes over TCP, with TLS and without, in both sizes of batches of the bench ``loopback``.

The producer is in a network namespace of its own, as on another host; for a user who may not make one, over loopback. The
clock runs from the request for the data to its last byte, so it includes the handshakes. Each end encrypts or decrypts
on its I/O thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection

from benches import harness, namespace
from benches.loopback import HOST, SIZES, headgate, produce


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    with ExitStack() as stack:
        try:
            name = stack.enter_context(namespace.another_host())
        except PermissionError as error:
            host, where, body = HOST, f"loopback, as {error}", produce
        else:
            host, where = namespace.THERE, "two network namespaces"
            body = partial(produce_elsewhere, name)
        producer = stack.enter_context(harness.process(body))
        for size, goal in (("2 MiB", 0.6), ("32 KiB", 0.7)):
            batch_bytes, total = SIZES[size]
            number = total // batch_bytes // (16 if options.quick else 1)
            bench = "tls_small" if size == "32 KiB" else "tls"
            run = partial(
                headgate, producer, batch_bytes, number, host=host, same_host_link="off"
            )
            harness.compare(
                bench,
                f"{number:,} batches of {size}, one channel, two processes, TCP, {where}",
                {"TLS": partial(run, tls="require"), "plain": partial(run, tls="off")},
                [harness.Ratio(bench, "plain", "TLS", goal=goal)],
                turns=options.turns,
                size=number * batch_bytes,
                quick=options.quick,
            )


def produce_elsewhere(name: str, orders: Connection) -> None:
    namespace.enter(name)
    produce(orders)
