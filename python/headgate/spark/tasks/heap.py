"""Keeps what a worker has loaded out of Python's garbage collections.

Decision: ADR 0024.
"""

from __future__ import annotations

import gc
from typing import Final

#: Tasks of a worker that load modules: the first one Spark's and Headgate's, then those that its
#: function imported.
_LOADING: Final = 2

_begun = 0


def settle() -> None:
    """Freeze all objects that exist, if this is one of the first tasks of the worker.

    PySpark collects garbage after each task, before the worker takes the next one. With pyarrow and
    pandas loaded this visits 70,000 objects; it does not visit frozen ones.
    """
    global _begun  # noqa: PLW0603 - counts in this process
    if _begun < _LOADING:
        _begun += 1
        gc.freeze()
