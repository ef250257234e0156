"""Exceptions of a source's own code, as errors that name it and the splits it was at."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import HeadgateError, SourceError

#: Splits that an error names; more are counted.
_NAMED = 5


def source_failure(
    error: Exception, source: str, during: str, splits: Sequence[str]
) -> HeadgateError:
    """Return the error to raise for what a source's code raised.

    Errors of Headgate pass as they are: they say already what is wrong.

    Args:
        error: what was raised; becomes the cause.
        source: its name.
        during: the method that raised.
        splits: the unfinished splits of the reader.
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
    """Return the splits as an error names them."""
    if not splits:
        return "no split at work"
    more = len(splits) - _NAMED
    named = ", ".join(splits[:_NAMED])
    word = "split" if len(splits) == 1 else "splits"
    return f"{word} {named} and {more} more" if more > 0 else f"{word} {named}"
