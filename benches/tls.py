"""One channel between two processes over TCP, with TLS and without, in both sizes of batches of the bench ``loopback``.

The clock runs from the request for the data to its last byte, so it includes the handshakes. Each end encrypts or
decrypts on its I/O thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benches import harness
from benches.loopback import HOST, SIZES, headgate, produce


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    with harness.process(produce) as producer:
        for name, goal in (("2 MiB", 0.6), ("32 KiB", 0.7)):
            batch_bytes, total = SIZES[name]
            number = total // batch_bytes // (16 if options.quick else 1)
            bench = "tls_small" if name == "32 KiB" else "tls"
            harness.compare(
                bench,
                f"{number:,} batches of {name}, one channel, two processes, TCP on {HOST}",
                {
                    way: partial(
                        headgate, producer, batch_bytes, number, same_host_link="off", tls=tls
                    )
                    for way, tls in (("TLS", "require"), ("plain", "off"))
                },
                [harness.Ratio(bench, "plain", "TLS", goal=goal)],
                turns=options.turns,
                size=number * batch_bytes,
                quick=options.quick,
            )
