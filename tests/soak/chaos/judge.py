"""Judges the outcome of a run: the right rows, one clear error with the true cause, or neither."""

import re
from dataclasses import dataclass

#: Possible outcomes: the right rows; an error with the true cause; wrong rows or a wrong error; no
#: end within the limit; right, but with leftovers; an end before the fault could strike.
OUTCOMES = ("rows", "error", "wrong", "hang", "left", "missed")
#: Outcomes that are permitted.
GOOD = frozenset({"rows", "error", "missed"})

_HEAD = re.compile(r"\[(HG-\d{4})\] ([^\n]*)")
#: Codes to which a cut connection between workers may lead.
_CUT = {"HG-3001", "HG-3002", "HG-3007"}
#: Codes to which a changed byte may lead: in the handshake, in a frame, or in a page.
_CHANGED = {"HG-3002", "HG-3003", "HG-3004", "HG-3005", "HG-3006", "HG-4003", "HG-4005"}
#: Texts that name the connection to the coordinator.
_CONTROL = ("HG-3008", "coordinator on the driver", "control connection", "control frame")


@dataclass(frozen=True, slots=True)
class Said:
    """An error as a user sees it: its first code and line, and its whole text."""

    code: str
    summary: str
    text: str


def said(text):
    """Return the error in the text of an exception. Its code is empty if the text has none."""
    own = text.split("\n\nDriver stacktrace")[0]
    head = _HEAD.search(own)
    if head is None:
        first = own.strip().partition("\n")[0]
        return Said("", first[:300], own)
    return Said(head[1], head[2].strip()[:300], own)


def misfit(plan, error):
    """Return the reason that an error does not name the fault as its cause; empty if it does."""
    action, _, what = plan.kind.partition(" ")
    if not error.code:
        return "no code of Headgate"
    match action:
        case "none":
            return "an error without a fault"
        case "pause":
            return "a pause shorter than the limit was taken for a loss"
        case "kill" | "stop":
            return _lost(plan.victim, error)
    return _data(action, error) if what == "data" else _control(plan, action, error)


def _data(action, error):
    known = _CUT if action == "cut" else _CHANGED
    return "" if error.code in known else f"{error.code} does not follow from a {action}"


def _control(plan, action, error):
    if any(words in error.text for words in _CONTROL):
        return ""
    if action == "cut" and error.code == "HG-3001":
        return _lost(plan.victim, error)
    return f"{error.code}, without naming the connection to the coordinator"


def _lost(victim, error):
    if error.code != "HG-3001":
        return f"{error.code} does not follow from a lost process"
    roles = (victim,) if victim in {"producer", "consumer"} else ("producer", "consumer")
    named = [role for role in ("producer", "consumer") if role in error.summary]
    if not named:
        return "the error does not name the lost member"
    if not set(named) & set(roles):
        return f"the error names a {named[0]}, but a {victim} was lost"
    return ""
