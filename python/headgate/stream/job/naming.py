"""Names of operators as parts of paths."""

from __future__ import annotations

import re


def safe(name: str) -> str:
    """Return a name as one component of a path: other characters become ``_`` and their codes."""
    return re.sub(r"[^A-Za-z0-9.-]", lambda found: f"_{ord(found[0]):x}_", name)
