"""The messages between the doctor on the driver and its tasks."""

from __future__ import annotations

from typing import Final

from headgate.control import shapes
from headgate.control.messages import Codec

CODEC: Final = Codec(
    {
        # task -> driver: the task's number, the executor on which it runs, and where its data plane listens
        "HERE": {
            "number": shapes.count,
            "executor": shapes.text,
            "host": shapes.name,
            "port": shapes.port,
            "process": shapes.identity,
        },
        # driver -> task: connect to these peers, by number, host and port
        "DIAL": {
            "peers": shapes.many(shapes.row(shapes.count, shapes.name, shapes.port)),
            "seconds": shapes.amount,
        },
        # its answer: errors by the peers' numbers, the epoch seconds at which it began, and the seconds it took
        "DIALED": {
            "errors": shapes.many(shapes.row(shapes.count, shapes.text)),
            "at": shapes.amount,
            "took": shapes.amount,
        },
        # driver -> task: write a partition for one peer, and read that of another: host, port, process, partition
        "EXCHANGE": {
            "size": shapes.count,
            "seconds": shapes.amount,
            "serve": shapes.maybe(shapes.identity),
            "read": shapes.maybe(
                shapes.row(shapes.name, shapes.port, shapes.identity, shapes.identity)
            ),
        },
        # bytes per second, null if nothing was read in time; an error's code is empty if there is none
        "EXCHANGED": {
            "rate": shapes.maybe(shapes.amount),
            "link": shapes.text,
            "error": shapes.text,
            "code": shapes.text,
            # the last native events of the process
            "trace": shapes.many(shapes.text),
        },
    },
    # A list of a thousand executors with their addresses fits.
    max_message=1 << 20,
)

#: Kind of a question -> kind of its answer.
ANSWERS: Final = {"DIAL": "DIALED", "EXCHANGE": "EXCHANGED"}
