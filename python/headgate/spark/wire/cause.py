"""The first cause of a failed run: made where it happened, sent as text, raised everywhere else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headgate import errors
from headgate.spark.wire.messages import cut

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        """Return the fields of an ABORT or FAILED message, long ones cut."""
        limits = {"summary": 1000, "asked": 300, "have": 300, "remedy": 300, "where": 200}
        return {name: cut(text, limits.get(name, 7000)) for name, text in asdict(self).items()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Cause:
        """Return the cause that a message carries."""
        return cls(**fields)

    @classmethod
    def of(cls, error: BaseException, text: str = "", where: str = "") -> Cause:
        """Return the cause that an exception stands for."""
        if isinstance(error, errors.HeadgateError):
            return cls(
                error.code or errors.InternalError.code,
                error.summary,
                error.asked,
                error.have,
                error.remedy,
                text or error.cause_text,
                where,
            )
        summary = f"{type(error).__name__}: {error}"
        return cls(errors.InternalError.code, summary, text=text, where=where)

    def error(self) -> errors.HeadgateError:
        """Return the error to raise; the original traceback is its note, once."""
        have = self.have or self.where
        error = errors.from_code(self.code, self.summary, self.asked, have, self.remedy)
        return error.caused_by(self.text)


CANCELLED = Cause(errors.CancelledError.code, "the run was cancelled")
