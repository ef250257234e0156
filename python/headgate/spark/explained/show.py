"""Shows how exchanges will run: as text of at most 100 columns, and as HTML. Pure functions.

HTML escapes every text, and has no colour of its own, so that it is readable in light and dark.
"""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from headgate.observe.numbers import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.spark.explained.model import ExchangeExplained, InputExplained

#: Most characters of a line, and the width of the column with the labels.
WIDTH: Final = 100
_LABEL: Final = 13
#: Most names of columns that a sentence lists.
_NAMED: Final = 6
_MARKS: Final = {True: "ok", False: "!", None: "?"}
_WORDS: Final = {
    "repartition": "Spark's own repartition",
    "kept": "kept",
}
_CELL: Final = "padding:1px 12px 1px 0;text-align:left;vertical-align:top"


def text(exchanges: Sequence[ExchangeExplained]) -> str:
    """Return lines of at most :data:`WIDTH` characters, in the order in which rows pass the exchanges."""
    lines: list[str] = []
    for number, one in enumerate(exchanges, 1):
        lines.append(_head(number, len(exchanges), one))
        before = ""
        for label, said in rows_of(one):
            name = "" if label == before else label
            rest = WIDTH - _LABEL - 2
            # A word may be longer than a line: a path, or the name of a column.
            first, *more = wrap(said, rest, break_on_hyphens=False) or [""]
            lines.append(f"  {name:<{_LABEL}}{first}")
            lines += [f"  {'':<{_LABEL}}{line}" for line in more]
            before = label
    return "\n".join(lines)


def html(exchanges: Sequence[ExchangeExplained]) -> str:
    """Return an HTML fragment with the content of :func:`text`."""
    parts = []
    for number, one in enumerate(exchanges, 1):
        rows, before = [], ""
        for label, said in rows_of(one):
            name = "" if label == before else label
            before = label
            rows.append(
                f'<tr><th scope="row" style="{_CELL};white-space:nowrap">{escape(name)}</th>'
                f'<td style="{_CELL}">{escape(said)}</td></tr>'
            )
        head = escape(_head(number, len(exchanges), one))
        parts.append(
            f'<table style="margin:0"><caption style="text-align:left"><b>{head}</b></caption>{"".join(rows)}</table>'
        )
    return (
        '<div style="color-scheme:light dark;font-family:sans-serif;font-size:13px">'
        + "".join(parts)
        + "</div>"
    )


def rows_of(one: ExchangeExplained) -> Iterator[tuple[str, str]]:
    """Yield label and sentence of all that is known of an exchange."""
    yield "mode", f"{_WORDS[one.mode]}: {one.why}"
    # One reason may decide for a way and against the others.
    for other in (other for other in one.others if other.why != one.why):
        yield "not", f"{_WORDS[other.mode]}: {other.why}"
    for given in one.inputs:
        yield from _input(given, several=len(one.inputs) > 1)
    yield "partitions", f"{_number(one.partitions.number)}: {one.partitions.why}"
    for copied in one.copies:
        yield "copied", f"{copied.step}: {names(copied.columns)}: {copied.why}"
    for said in one.in_place:
        yield "not copied", said
    yield "memory", one.memory.why
    yield "disk", one.disk.why
    for check in one.checks:
        yield "checks", f"{_MARKS[check.ok]:<2} {check.name}: {check.why}"
    for back in one.falls_back:
        yield "falls back", f"{back.when}: {_WORDS[back.mode]}, as {back.why}"
    for advice in one.faster:
        yield "faster", f"{advice.do}: {advice.why}"
    for said in one.unknown:
        yield "unknown", said


def names(columns: Sequence[str]) -> str:
    """Return names of columns, the first of them if there are many."""
    more = len(columns) - _NAMED
    return ", ".join(columns[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _head(number: int, of: int, one: ExchangeExplained) -> str:
    place = "" if of == 1 else f" ({number} of {of})"
    return f"headgate exchange {one.name[:4]}{place}"


def _input(given: InputExplained, *, several: bool) -> Iterator[tuple[str, str]]:
    label = f"input {given.number}" if several else "input"
    what = f"source {given.source}, read by the workers" if given.source else "DataFrame"
    amount = (
        "rows of unknown size"
        if given.bytes is None
        else f"{size(given.bytes)} by Spark's estimate"
    )
    yield label, f"{what}, {amount}"
    if given.spark_reads:
        yield label, f"Spark reads it, although read is auto: {given.spark_reads}"
    yield label, f"{_number(given.producers.number)} producers: {given.producers.why}"
    yield label, f"placed {given.placed}"
    if given.sort_within:
        yield label, f"sorted within partitions by {names(given.sort_within)}"


def _number(number: int | None) -> str:
    return "unknown number of" if number is None else f"{number:,}"
