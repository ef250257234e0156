"""Functions that wait for a service, called for one row or for a few, many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate._arguments import duration

if TYPE_CHECKING:
    from headgate.stream.graph.context import FunctionRows, RuntimeContext

#: The result of a call: a row as a dict, several of them, or rows as :class:`~headgate.stream.ProcessFunction` returns them.
CallRows: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | FunctionRows"


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call.

    Attributes:
        call_id: names the call for the service, as its idempotency key: the same for all attempts, those after a restart
            from a checkpoint included. No other call has it.
        attempt: number of the attempt, from 1.
        shared: what ``shared=`` has loaded for all tasks of this process; None without ``shared=``.
    """

    call_id: str
    attempt: int
    shared: Any = field(default=None, repr=False, compare=False)


class Retry(Exception):
    """Raised by a function to be called again later.

    Args:
        reason: for reports.
        after: how long the service asks to wait, in seconds or as ``"5s"``; None for the wait of ``backoff=``.

    Raises:
        OptionError: ``after`` is no length of time.
    """

    def __init__(self, reason: str = "", after: float | str | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else duration("after", after, 0)


class Refusal(Exception):
    """Raised by a function whose call no further attempt would change, as after an answer of 400: it fails at once.

    Args:
        reason: for reports.
    """


class CallFunction:
    """A function that waits, with something to open first, such as a client; one instance per task.

    If ``call`` is a coroutine function, all calls of a task run in one thread with an event loop, and so do ``open`` and
    ``close``, which may be coroutine functions too. Else each call that is under way has a thread of its own.
    Source: Flink's RichAsyncFunction.
    """

    def open(self, context: RuntimeContext) -> Awaitable[None] | None:
        """Open resources; called once, before any call. ``context.emit()`` has no meaning here."""

    def call(self, rows: Any, context: CallContext) -> CallRows | Awaitable[CallRows]:
        """Handle a row as a dict, or with ``batch_rows=`` a batch.

        Returns:
            A dict or several, or rows as of a ``map()``. A column that a dict does not have is null. ``[]`` for no rows;
            None is an error.
        """
        raise NotImplementedError

    def close(self) -> Awaitable[None] | None:
        """Release resources; called once, also after a failure."""
