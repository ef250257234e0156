"""What a run was worth: the right rows, one clear error with the true cause, or neither."""

import re
from dataclasses import dataclass

#: Rows as they must be; an error that says what happened; rows or an error that do not; no end
#: within the limit; right, but something stayed behind; ended before the fault could happen.
OUTCOMES = ("rows", "error", "wrong", "hang", "left", "missed")
#: Outcomes that a run may have.
GOOD = frozenset({"rows", "error", "missed"})

_HEAD = re.compile(r"\[(HG-\d{4})\] ([^\n]*)")
#: Codes that a connection between workers may end with, when it is cut.
_CUT = {"HG-3001", "HG-3002", "HG-3007"}
#: Codes of what arrives changed: in the handshake, in a frame, in a page.
_CHANGED = {"HG-3002", "HG-3003", "HG-3004", "HG-3005", "HG-3006", "HG-4003", "HG-4005"}
#: Words for the connection to the coordinator.
_CONTROL = ("HG-3008", "coordinator on the driver", "control connection", "control frame")


@dataclass(frozen=True, slots=True)
class Said:
    """An error as a user sees it: its first code and line, and all of its text."""

    code: str
    summary: str
    text: str


def said(text):
    """Return the error in the text of an exception; its code is empty when there is none."""
    own = text.split("\n\nDriver stacktrace")[0]
    head = _HEAD.search(own)
    if head is None:
        first = own.strip().partition("\n")[0]
        return Said("", first[:300], own)
    return Said(head[1], head[2].strip()[:300], own)


def misfit(plan, error):
    """Return why an error does not tell the cause of a run's fault; empty when it does."""
    action, _, what = plan.kind.partition(" ")
    if not error.code:
        return "no code of Headgate"
    match action:
        case "none":
            return "an error without a fault"
        case "pause":
            return "a pause that is shorter than the limit counts as a loss"
        case "kill" | "stop":
            return _lost(plan.victim, error)
    return _data(action, error) if what == "data" else _control(plan, action, error)


def _data(action, error):
    known = _CUT if action == "cut" else _CHANGED
    return "" if error.code in known else f"{error.code} is not what a {action} leads to"


def _control(plan, action, error):
    if any(words in error.text for words in _CONTROL):
        return ""
    if action == "cut" and error.code == "HG-3001":
        return _lost(plan.victim, error)
    return f"{error.code}, and nothing of the connection to the coordinator"


def _lost(victim, error):
    if error.code != "HG-3001":
        return f"{error.code} is not what a lost process leads to"
    roles = (victim,) if victim in {"producer", "consumer"} else ("producer", "consumer")
    named = [role for role in ("producer", "consumer") if role in error.summary]
    if not named:
        return "it does not say who was lost"
    if not set(named) & set(roles):
        return f"it names a {named[0]}, lost was a {victim}"
    return ""
