"""The messages between the driver and the consumers of kept exchanges, as bounded JSON.

No message is a pickle, so the driver never runs code that a worker sends. Each message has a kind, and exactly
the fields of its row in :data:`FIELDS`.

Decision: ADR 0005.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Checks = dict[str, Callable[[Any], bool]]

#: Most bytes of one encoded message.
MAX_MESSAGE: Final = 64 * 1024
#: Most characters of a text in a message. JSON's escapes take up to six bytes per character.
MAX_TEXT: Final = 9_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        kind: the key of its row in :data:`FIELDS`.
        fields: the values of its fields.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return one field."""
        return self.fields[name]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_hosts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(host, list)
        and len(host) == 3
        and _is_text(host[0])
        and _is_port(host[1])
        and _is_id(host[2])
        for host in value
    )


def _is_placed(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 3 and all(map(_is_count, one)) for one in value
    )


def _is_port(value: Any) -> bool:
    return _is_count(value) and 0 < value < 1 << 16


#: kind -> field -> check of its value.
FIELDS: Final[dict[str, Checks]] = {
    # consumer of a kept exchange -> driver: where are its producers?
    "ASK_PLACES": {},
    # driver -> that consumer: hosts with port and process, then for some producers the attempt
    # and the index of its host; several messages, the last with is_last
    "PLACES": {"hosts": _is_hosts, "producers": _is_placed, "is_last": _is_flag},
    # consumer of a kept exchange -> driver: nobody listens where this host did
    "HOST_LOST": {"process": _is_id},
}


def encode(message: Message) -> bytes:
    """Return the bytes of a message, at most :data:`MAX_MESSAGE`.

    Raises:
        ProtocolError: the message does not fit its row, or is too large.
    """
    _check(message.kind, message.fields)
    body = {"kind": message.kind, **message.fields}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a {message.kind} message has {len(data)} bytes, above {MAX_MESSAGE}")
    return data


def decode(data: bytes) -> Message:
    """Return the message in ``data``.

    Raises:
        ProtocolError: the message is too large, is no JSON object, or does not fit its row.
    """
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a message has {len(data)} bytes, above {MAX_MESSAGE}")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("a message is not JSON") from None
    if not isinstance(body, dict):
        raise ProtocolError("a message is not a JSON object")
    kind = body.pop("kind", None)
    _check(kind, body)
    return Message(kind, body)


def _check(kind: Any, fields: Mapping[str, Any]) -> None:
    known = FIELDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ProtocolError(f"unknown message {repr(kind)[:40]}")
    if set(fields) != set(known):
        raise ProtocolError(f"a {kind} message does not have the fields {', '.join(known)}")
    for name, fits in known.items():
        if not fits(fields[name]):
            raise ProtocolError(f"a {kind} message has no valid {name}")
