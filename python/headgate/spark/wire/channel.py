"""The links of an exchange's control connections: their messages are those of :mod:`messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.control import link
from headgate.control.link import control_key as control_key  # noqa: PLC0414 - of these links
from headgate.spark.wire.messages import MAX_MESSAGE, Message, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate._native import ControlKey


class _Messages:
    """The codec of control messages."""

    max_message = MAX_MESSAGE
    encode = staticmethod(encode)
    decode = staticmethod(decode)

    @staticmethod
    def is_last(_: Message) -> bool:
        """Return False: any message may be followed by another one."""
        return False


MESSAGES: Final = _Messages()


class WorkerLink(link.WorkerLink[Message]):
    """The worker's end; see :class:`headgate.control.link.WorkerLink`."""

    def __init__(self, key: ControlKey, exchange_id: bytes) -> None:
        super().__init__(key, exchange_id, MESSAGES)


class CoordinatorLink(link.CoordinatorLink[Message]):
    """The coordinator's end; see :class:`headgate.control.link.CoordinatorLink`."""

    def __init__(self, keys: Callable[[bytes], ControlKey | None]) -> None:
        super().__init__(keys, MESSAGES)
