"""Stored texts: a file of calls, each with the exact text that a user reads, which a test compares."""

import os

PROMPT = ">>> "
#: With this variable the files get the texts of today, for a look at the difference by git.
VARIABLE = "HEADGATE_TEST_STORE"


def stored(path):
    """Return the calls of a file with their texts."""
    _, *blocks = path.read_text(encoding="utf-8").split(f"\n{PROMPT}")
    return [tuple((block.rstrip("\n") + "\n").split("\n", 1)) for block in blocks]


def check(path, text_of):
    """Compare the texts of a file with those that its calls give now.

    Args:
        path: of the file. What is before its first call is for readers.
        text_of: returns the text that a call gives.
    """
    texts = [(call, text.rstrip("\n"), text_of(call).rstrip("\n")) for call, text in stored(path)]
    assert texts, f"{path} has calls"
    if os.environ.get(VARIABLE):
        head = path.read_text(encoding="utf-8").partition(f"\n{PROMPT}")[0]
        blocks = [f"{PROMPT}{call}\n{now}\n" for call, _, now in texts]
        path.write_text("\n".join([f"{head.rstrip()}\n", *blocks]), encoding="utf-8")
        return
    wrong = [f"{PROMPT}{call}\n{now}\n--- not\n{then}" for call, then, now in texts if now != then]
    assert wrong == [], "\n\n".join([*wrong, f"{VARIABLE}=1 stores the texts of today"])
