"""Objects that the tasks of a job in one process share, such as a model: each is loaded once, and kept over restarts.

Decision: ADR 0061.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import CancelledError, UserFunctionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stream.graph.metrics import Metrics

_LOG: Final = logging.getLogger("headgate.stream")
_REMEDY: Final = "def load(): return Model(...)"


@dataclass(eq=False, slots=True)
class _Shared:
    """One object.

    Attributes:
        load: returns it.
        value: what the tasks get.
        close: closes it.
        error: of the load.
        seconds: that the load took.
        has_ended: True once there is the value or the error.
    """

    load: Callable[[], Any]
    value: Any = None
    close: Callable[[], object] = lambda: None
    error: BaseException | None = None
    seconds: float = 0.0
    has_ended: bool = False


class SharedObjects:
    """Loads what the tasks of a job in this process share: once for functions that are equal.

    The graph of a job is pickled as a whole, so two operators with one function have one function here too. A load has
    a thread of its own: a task that is cancelled does not wait for it, and the next attempt takes its result.
    """

    def __init__(self) -> None:
        self._objects: list[_Shared] = []
        self._changed = threading.Condition()
        self._is_closed = False

    def get(
        self,
        uid: str,
        load: Callable[[], Any],
        metrics: Metrics,
        is_cancelled: Callable[[], bool],
    ) -> Any:
        """Return what a function has loaded; load it, or wait until another task's load has ended.

        Args:
            uid: of the operator.
            load: the function.
            metrics: of the operator in the task that asks.
            is_cancelled: True if the task need not wait any more; :meth:`wake_up` has it asked again.

        Raises:
            UserFunctionError: the load has failed. The next task that asks tries again.
            CancelledError: the task was cancelled, or the job has ended.
        """
        loading, loads = metrics.gauge("shared_loading"), metrics.counter("shared_loads")
        with self._changed:
            shared = next((other for other in self._objects if other.load == load), None)
            if shared is None and not self._is_closed:
                shared = _Shared(load)
                thread = threading.Thread(
                    target=self._load, args=(shared,), name=f"headgate-{uid}-load", daemon=True
                )
                thread.start()
                loads.add()
                self._objects.append(shared)
            while shared and not (shared.has_ended or is_cancelled() or self._is_closed):
                loading.set(1)
                self._changed.wait()
        loading.set(0)
        if shared is None or not shared.has_ended or self._is_closed:
            raise CancelledError("the task was cancelled while it waited for what shared= loads")
        error = shared.error
        if error is not None:
            raise UserFunctionError(
                f"shared= of {uid} failed: {type(error).__name__}: {error}", remedy=_REMEDY
            ) from error
        metrics.gauge("shared_load_seconds").set(shared.seconds)
        return shared.value

    def wake_up(self) -> None:
        """Let tasks that wait ask whether they are cancelled."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Close all objects, the last ones first; one that still loads is closed when it is there."""
        with self._changed:
            self._is_closed = True
            ended = [shared for shared in self._objects if shared.has_ended]
            self._objects.clear()
            self._changed.notify_all()
        for shared in reversed(ended):
            _close(shared)

    def _load(self, shared: _Shared) -> None:
        """Load an object, in a thread of its own."""
        started = time.monotonic()
        try:
            shared.value, shared.close = _opened(shared.load())
        except BaseException as error:  # noqa: BLE001 - of the tasks that wait
            shared.error = error
        shared.seconds = time.monotonic() - started
        with self._changed:
            shared.has_ended = True
            if shared.error is not None and shared in self._objects:
                self._objects.remove(shared)
            is_late = self._is_closed
            self._changed.notify_all()
        if is_late:
            _close(shared)


def _opened(value: Any) -> tuple[Any, Callable[[], object]]:
    """Return what tasks get of a loaded object, and what closes it.

    Raises:
        UserFunctionError: it is nothing that threads can share.
    """
    if value is None:
        raise UserFunctionError("the function returned None", remedy=_REMEDY)
    close = None if isinstance(value, type) else getattr(value, "close", None)
    if isawaitable(value) or iscoroutinefunction(close):
        raise UserFunctionError(
            f"{type(value).__name__} belongs to one event loop, and each task has its own",
            remedy="open it in open() of a CallFunction",
        )
    if callable(close):
        return value, close
    if hasattr(type(value), "__enter__") and hasattr(type(value), "__exit__"):
        stack = ExitStack()
        return stack.enter_context(value), stack.close
    return value, lambda: None


def _close(shared: _Shared) -> None:
    try:
        shared.close()
    except Exception:  # noqa: BLE001 - logged; the job is over
        _LOG.warning("what shared= has loaded cannot be closed", exc_info=True)
