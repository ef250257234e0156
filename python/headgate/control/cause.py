"""The first cause of a failed run: recorded where it happened, sent as text, raised elsewhere."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.control.descriptors import tells_shortage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

#: Most characters of each field of a cause in a message.
LIMITS: Final = {
    "code": 20,
    "summary": 1000,
    "asked": 300,
    "have": 300,
    "remedy": 300,
    "text": 7000,
    "where": 200,
}


def cut(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out, if it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    gap = f"\n... {len(text) - limit} characters left out ...\n"
    keep = limit - len(gap)
    return text[: keep // 2] + gap + text[len(text) - (keep - keep // 2) :]


def message_of(error: BaseException) -> str:
    """Return the message of an exception; never raises, even if its ``__str__`` does."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's class may do anything
        return f"<{type(failure).__name__} in its __str__>"


def traceback_of(error: BaseException, frames: TracebackType | None = None) -> str:
    """Return an exception as Python prints it, with its notes and causes; never raises.

    Args:
        error: an exception of any class.
        frames: the traceback to print; that of the exception if not given.
    """
    frames = error.__traceback__ if frames is None else frames
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except Exception as failure:  # noqa: BLE001 - a user's class may do anything
        name = type(failure).__name__
        return f"{type(error).__name__}: {message_of(error)}\n(its traceback cannot be printed: {name})"
    return "".join(lines).rstrip("\n")


def sendable(text: str, limit: int) -> str:
    """Return a text cut to ``limit`` characters, with those that UTF-8 cannot encode escaped."""
    return cut(cut(text, limit).encode("utf-8", "backslashreplace").decode(), limit)


def one_line(text: str, limit: int) -> str:
    """Return the first line of a text, cut to ``limit`` characters, those of no UTF-8 escaped."""
    line = next(iter(text[: 2 * limit].splitlines()), "")
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= limit else line[: limit - 4] + " ..."


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason why a run ended early.

    Attributes:
        code: the code of the error, such as ``"HG-6001"``.
        summary: one line.
        asked: see :class:`~headgate.errors.HeadgateError`.
        have: see :class:`~headgate.errors.HeadgateError`.
        remedy: see :class:`~headgate.errors.HeadgateError`.
        text: the original traceback, or Spark's message.
        where: the task in which the error happened.
    """

    code: str
    summary: str
    asked: str = ""
    have: str = ""
    remedy: str = ""
    text: str = ""
    where: str = ""

    @property
    def is_shortage(self) -> bool:
        """True if the limit of open files was reached: to wait helps, and nobody's code or data is at fault."""
        return tells_shortage(self.summary) or tells_shortage(self.text)

    def fields(self) -> dict[str, str]:
        """Return the fields of an ABORT or FAILED message, cut to their limits and in UTF-8."""
        fields = {name: sendable(text, LIMITS[name]) for name, text in asdict(self).items()}
        return {**fields, "summary": one_line(self.summary, LIMITS["summary"])}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Cause:
        """Return the cause that a message carries."""
        return cls(**fields)

    @classmethod
    def of(cls, error: BaseException, text: str = "", where: str = "") -> Cause:
        """Return the cause for an exception, with the traceback of the original error."""
        if isinstance(error, errors.HeadgateError):
            origin = error.__cause__
            text = text or error.cause_text or ("" if origin is None else traceback_of(origin))
            if error.trace_text not in text:
                text = f"{text}\n{error.trace_text}".lstrip("\n")
            return cls(
                error.code or errors.InternalError.code,
                error.summary,
                error.asked,
                error.have,
                error.remedy,
                text,
                where,
            )
        summary = f"{type(error).__name__}: {message_of(error)}"
        text = text or traceback_of(error)
        return cls(errors.InternalError.code, summary, text=text, where=where)

    def error(self) -> errors.HeadgateError:
        """Return the error to raise, with the original traceback as its note."""
        have = self.have or self.where
        error = errors.from_code(self.code, self.summary, self.asked, have, self.remedy)
        return error.caused_by(self.text)
