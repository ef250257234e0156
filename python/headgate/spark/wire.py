"""The messages between the driver and the consumers of kept exchanges."""

from __future__ import annotations

from typing import Final

from headgate.control import shapes
from headgate.control.messages import Codec

CODEC: Final = Codec(
    {
        # consumer -> driver: which hosts serve the output of the exchange's producers?
        "ASK_HOSTS": {},
        # driver -> consumer: hosts with port and process, then for some producers the attempt
        # and the index of its host; several messages, the last with is_last
        "HOSTS": {
            "hosts": shapes.many(shapes.row(shapes.name, shapes.port, shapes.identity)),
            "producers": shapes.many(shapes.row(*[shapes.count] * 3)),
            "is_last": shapes.flag,
        },
        # consumer -> driver: nobody listens where this host did
        "HOST_LOST": {"process": shapes.identity},
    },
    max_message=64 * 1024,
)
