"""The root of all errors: four lines of text, details for programs, a cause that pickles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self


#: Name and password before the host of a URI, and options of file systems that are secrets.
_LOGIN: Final = re.compile(r"(?<=://)[^\s'\"@:]*:[^\s'\"@]*@")
_OPTION: Final = re.compile(
    r"([?&](?:\w*(?:secret|password|credential)\w*|account_key|sas_token|session_token|sig)=)[^&\s'\"]+",
    re.IGNORECASE,
)


#: Begin of the note of :meth:`HeadgateError.with_trace`.
_TRACE: Final = "trace (UTC), the newest event last:"


class HeadgateWarning(UserWarning):
    """The call works, but in another way than asked for. Issued on the driver only, once.

    Attributes:
        code: such as ``"HG-2101"``, or ``""`` for plain text.
    """

    code: str = ""


class HeadgateError(Exception):
    """Root of all errors of Headgate. Its texts have no secrets of URIs.

    Args:
        summary: the problem in one line, with names, values and limits.
        asked: the caller's request.
        have: the actual state.
        remedy: alternatives separated by " · "; the class's default if empty.
        details: the same facts for programs; values must be picklable.

    Attributes:
        code: such as ``"HG-2101"``, which is also the name of its page.
        is_final: True if the same work fails again, so that nothing is tried again: a streaming job ends without a restart.
        cause_text: text of the cause (often a traceback from another process), or ``""``.
    """

    code: ClassVar[str] = ""
    default_remedy: ClassVar[str] = ""
    is_final: ClassVar[bool] = False

    def __init__(
        self,
        summary: str,
        *,
        asked: str = "",
        have: str = "",
        remedy: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        summary = masked(summary)
        super().__init__(summary)
        self.summary = summary
        self.asked = masked(asked)
        self.have = masked(have)
        self.remedy = masked(remedy) or self.default_remedy
        self.details: dict[str, Any] = {
            name: masked(value) if isinstance(value, str) else value
            for name, value in (details or {}).items()
        }
        self.cause_text = ""

    def __str__(self) -> str:
        """Return the four lines."""
        lines = [f"[{self.code}] {self.summary}" if self.code else self.summary]
        facts = {"asked   ": self.asked, "have  ": self.have}
        if any(facts.values()):
            texts = (name + text for name, text in facts.items() if text)
            lines.append("  " + "        ".join(texts))
        if self.remedy:
            lines.append(f"  do one  {self.remedy}")
        if self.code:
            lines.append(f"  more    python -m headgate explain {self.code}")
        return "\n".join(lines)

    def caused_by(self, text: str) -> Self:
        """Add the text of a cause that cannot be chained as a note; return self."""
        text = masked(text)
        if text and text != self.cause_text:
            self.cause_text = text
            self.add_note(f"caused by:\n{text}")
        return self

    def with_trace(self, lines: Sequence[str]) -> Self:
        """Add the last native events of this process as a note; return self."""
        self.add_note("\n".join([_TRACE, *lines]))
        return self

    @property
    def trace_text(self) -> str:
        """The note with the last native events of the process in which the error happened, or ``""``."""
        notes = getattr(self, "__notes__", ())
        return next((note for note in notes if note.startswith(_TRACE)), "")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, the notes and the cause as text, because tracebacks do not pickle."""
        return _rebuild, (type(self), self._state())

    def _state(self) -> dict[str, Any]:
        cause_text = self.cause_text
        notes = list(getattr(self, "__notes__", ()))
        cause = self.__cause__ or (None if self.__suppress_context__ else self.__context__)
        if cause is not None and not cause_text:
            import traceback  # noqa: PLC0415 - slow to import, needed only to pickle

            cause_text = "".join(traceback.format_exception(cause)).rstrip("\n")
            notes.append(f"caused by:\n{cause_text}")
        return {
            "summary": self.summary,
            "asked": self.asked,
            "have": self.have,
            "remedy": self.remedy,
            "details": self.details,
            "cause_text": cause_text,
            "notes": notes,
        }


def masked(text: str) -> str:
    """Return a text with ``***`` in place of the passwords and keys in its URIs."""
    if "://" not in text:
        return text
    return _OPTION.sub(r"\1***", _LOGIN.sub("***@", text))


def _rebuild(cls: type[HeadgateError], state: Mapping[str, Any]) -> HeadgateError:
    error = cls(
        state["summary"],
        asked=state["asked"],
        have=state["have"],
        remedy=state["remedy"],
        details=state["details"],
    )
    error.cause_text = state["cause_text"]
    for note in state["notes"]:
        error.add_note(note)
    return error
