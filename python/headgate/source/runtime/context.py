"""The context of a reader of this host."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.source.api.reader import SourceReaderContext

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

#: Limits of a source event: characters of the name, bytes of the payload.
MAX_EVENT_NAME: Final = 200
MAX_EVENT_PAYLOAD: Final = 32 * 1024


class LocalReaderContext(SourceReaderContext):
    """The context of a reader of this host.

    Args:
        index: the reader's number, from 0.
        parallelism: number of readers.
        request: requests a split from the enumerator; gets the name of this host.
        send: sends an event to the enumerator.
        configuration: options of the job, as strings.
    """

    def __init__(
        self,
        index: int,
        parallelism: int,
        request: Callable[[str], object],
        send: Callable[[SourceEvent], object],
        configuration: Mapping[str, str] = _NOTHING,
    ) -> None:
        self._index = index
        self._parallelism = parallelism
        self._request = request
        self._send = send
        self._configuration = configuration
        self._host = socket.gethostname()

    @property
    def index_of_subtask(self) -> int:
        """This reader's number."""
        return self._index

    @property
    def current_parallelism(self) -> int:
        """The number of readers."""
        return self._parallelism

    @property
    def local_host_name(self) -> str:
        """The name of this host."""
        return self._host

    @property
    def configuration(self) -> Mapping[str, str]:
        """Options of the job."""
        return self._configuration

    def send_split_request(self) -> None:
        """Request a split from the enumerator."""
        self._request(self._host)

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        """Send an event to the enumerator.

        Raises:
            OptionError: its name or its payload is too long.
        """
        check_event(event)
        self._send(event)


def check_event(event: SourceEvent) -> None:
    """Check the size of an event.

    Raises:
        OptionError: its name or its payload is too long.
    """
    if len(event.name) > MAX_EVENT_NAME:
        raise OptionError(
            f"the name of a source event has {len(event.name)} characters; "
            f"the limit is {MAX_EVENT_NAME}",
            asked=f"name={event.name[:40]!r}...",
            remedy="put data into the payload",
        )
    if len(event.payload) > MAX_EVENT_PAYLOAD:
        raise OptionError(
            f"the payload of source event {event.name!r} has {len(event.payload)} bytes; "
            f"the limit is {MAX_EVENT_PAYLOAD}",
            remedy="send several events",
        )
