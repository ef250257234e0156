"""The first cause of a failed run: made where it happened, sent as text, raised everywhere else."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.spark.wire.messages import cut

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

#: Most characters of each text of a cause that travels.
LIMITS: Final = {
    "code": 20,
    "summary": 1000,
    "asked": 300,
    "have": 300,
    "remedy": 300,
    "text": 7000,
    "where": 200,
}


def said(error: BaseException) -> str:
    """Return what an exception says; what its class is called where saying it raises."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's class may do anything
        return f"<{type(failure).__name__} in its __str__>"


def traceback_of(error: BaseException, frames: TracebackType | None = None) -> str:
    """Return an exception as Python prints it, with its notes and causes; never raises.

    Args:
        error: of any class.
        frames: where the traceback begins; where the exception was caught when not given.
    """
    frames = error.__traceback__ if frames is None else frames
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except Exception as failure:  # noqa: BLE001 - a user's class may do anything
        name = type(failure).__name__
        return f"{type(error).__name__}: {said(error)}\n(its traceback cannot be printed: {name})"
    return "".join(lines).rstrip("\n")


def sendable(text: str, limit: int) -> str:
    """Return at most ``limit`` characters that UTF-8 can encode, whatever a user put into them."""
    return cut(cut(text, limit).encode("utf-8", "backslashreplace").decode(), limit)


def one_line(text: str, limit: int) -> str:
    """Return the first line of a text, at most ``limit`` characters that UTF-8 can encode."""
    line = next(iter(text[: 2 * limit].splitlines()), "")
    line = line.encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= limit else line[: limit - 4] + " ..."


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a run ended before its time.

    Attributes:
        code: of the error, as ``"HG-6001"``.
        summary: one line.
        asked: as in every error of Headgate.
        have: as in every error of Headgate.
        remedy: as in every error of Headgate.
        text: the original traceback, or what Spark said.
        where: the task it happened in.
    """

    code: str
    summary: str
    asked: str = ""
    have: str = ""
    remedy: str = ""
    text: str = ""
    where: str = ""

    @property
    def is_cancelled(self) -> bool:
        """Whether this is the consequence of a cancellation, never itself a cause."""
        return self.code == errors.CancelledError.code

    @property
    def is_second_hand(self) -> bool:
        """Whether a worker heard of it from a peer: the peer, or Spark, will know better.

        Such a cause ends an epoch; any other one ends the run. Another version stays another one.
        """
        if self.code == errors.VersionError.code:
            return False
        return self.code.startswith("HG-3") or self.code == errors.ProducerFailedError.code

    def fields(self) -> dict[str, str]:
        """Return the fields of an ABORT or FAILED message: long ones cut, all of them UTF-8."""
        fields = {name: sendable(text, LIMITS[name]) for name, text in asdict(self).items()}
        return {**fields, "summary": one_line(self.summary, LIMITS["summary"])}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Cause:
        """Return the cause that a message carries."""
        return cls(**fields)

    @classmethod
    def of(cls, error: BaseException, text: str = "", where: str = "") -> Cause:
        """Return the cause that an exception stands for, with what raised it."""
        if isinstance(error, errors.HeadgateError):
            origin = error.__cause__
            return cls(
                error.code or errors.InternalError.code,
                error.summary,
                error.asked,
                error.have,
                error.remedy,
                text or error.cause_text or ("" if origin is None else traceback_of(origin)),
                where,
            )
        summary = f"{type(error).__name__}: {said(error)}"
        text = text or traceback_of(error)
        return cls(errors.InternalError.code, summary, text=text, where=where)

    def error(self) -> errors.HeadgateError:
        """Return the error to raise; the original traceback is its note, once."""
        have = self.have or self.where
        error = errors.from_code(self.code, self.summary, self.asked, have, self.remedy)
        return error.caused_by(self.text)


CANCELLED = Cause(errors.CancelledError.code, "the run was cancelled")
