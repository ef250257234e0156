"""The text that Spark prints of an exception that leaves a task: the user's own frames, and its causes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from headgate.control.cause import sendable, traceback_of

if TYPE_CHECKING:
    from types import TracebackType


#: Most characters of a cause.
_MAX_TEXT: Final = 16 * 1024


def users_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame outside of Headgate on; the last one if there is none."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        module = frames.tb_frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] != "headgate":
            break
        frames = frames.tb_next
    return frames


def shown(error: BaseException) -> BaseException:
    """Return an exception with the user's frames alone, and with its cause as a note.

    Spark drops the cause where it drops its own frames, which is its default.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    is_told = getattr(error, "cause_text", "")
    if cause is not None and not is_told and os.environ.get("SPARK_SIMPLIFIED_TRACEBACK"):
        text = sendable(traceback_of(cause, users_frames(cause)), _MAX_TEXT)
        BaseException.add_note(error, f"caused by:\n{text}")
    return BaseException.with_traceback(error, users_frames(error))
