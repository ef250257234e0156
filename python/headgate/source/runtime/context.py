"""What the contexts of readers have in common: their place in the job."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headgate.source.api.reader import SourceReaderContext

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class PlacedReaderContext(SourceReaderContext):
    """The context of a reader of this host. Subclasses say how its messages reach the coordinator.

    Args:
        index: the reader's number, from 0.
        parallelism: number of readers.
        configuration: options of the job, as strings.
    """

    def __init__(
        self, index: int, parallelism: int, configuration: Mapping[str, str] = _NOTHING
    ) -> None:
        self._index = index
        self._parallelism = parallelism
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
