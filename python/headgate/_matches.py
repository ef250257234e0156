"""Similar names, for errors that suggest a correction."""

from __future__ import annotations

from collections.abc import Iterable


def close_matches(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """Return at most ``limit`` candidates that are similar to ``name``, the closest first.

    Ignores case. A candidate that contains the name, or is contained in it, is similar.
    """
    import difflib  # noqa: PLC0415 - needed only to word an error

    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.casefold(), candidate)
    folded = name.casefold()
    matches = difflib.get_close_matches(folded, by_folded, n=limit, cutoff=0.6)
    if len(folded) > 1:
        parts = (c for c in by_folded if len(c) > 1 and (folded in c or c in folded))
        matches += [c for c in parts if c not in matches]
    return [by_folded[c] for c in matches[:limit]]
