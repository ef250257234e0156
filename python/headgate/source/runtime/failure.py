"""Conversion of exceptions in a source's code into errors that name the source and its splits."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import HeadgateError, SourceError

#: Splits that an error names; it only counts the others.
_NAMED = 5


def source_failure(
    error: Exception, source: str, during: str, splits: Sequence[str]
) -> HeadgateError:
    """Return the error to raise for an exception of a source's code.

    Errors of Headgate are returned unchanged, because they explain the problem already.

    Args:
        error: the exception, which becomes the cause.
        source: the source's name.
        during: the method that raised it.
        splits: the reader's unfinished splits.
    """
    if isinstance(error, HeadgateError):
        return error
    first_line = str(error).partition("\n")[0]
    what = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    failure = SourceError(
        f"{source} failed in {during}(): {what}",
        have=split_names(splits),
        details={"source": source, "during": during, "splits": list(splits)},
    )
    failure.__cause__ = error
    return failure


def split_names(splits: Sequence[str]) -> str:
    """Return the names of splits for an error, at most five."""
    if not splits:
        return "no split at work"
    more = len(splits) - _NAMED
    named = ", ".join(splits[:_NAMED])
    word = "split" if len(splits) == 1 else "splits"
    return f"{word} {named} and {more} more" if more > 0 else f"{word} {named}"
