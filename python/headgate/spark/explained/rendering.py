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

    from headgate.spark.explained.fields import ExchangeExplained, Hop, InputExplained

#: Most characters of a line, and the width of the column with the labels.
WIDTH: Final = 100
_LABEL: Final = 13
#: Most names of columns that a sentence lists.
_NAMED: Final = 6
_MARKS: Final = {True: "ok", False: "!", None: "?"}
_MODES: Final = {
    "repartition": "Spark's own repartition",
    "kept": "kept",
    "broadcast": "broadcast",
}
#: Digits of the name of an exchange.
_NAME: Final = 30
_CELL: Final = "padding:1px 12px 1px 0;text-align:left;vertical-align:top"


def text(exchanges: Sequence[ExchangeExplained], hops: Sequence[Hop]) -> str:
    """Return lines of at most :data:`WIDTH` characters, in the order in which rows pass the exchanges."""
    lines = list(_chain(hops)) if hops and len(exchanges) > 1 else []
    for number, exchange in enumerate(exchanges, 1):
        lines.append(_head(number, len(exchanges), exchange))
        for label, sentence in _labelled(exchange):
            # A word may be longer than a line: a path, or the name of a column.
            first, *more = wrap(sentence, WIDTH - _LABEL - 2, break_on_hyphens=False) or [""]
            lines.append(f"  {label:<{_LABEL}}{first}")
            lines += [f"  {'':<{_LABEL}}{line}" for line in more]
    return "\n".join(lines)


def html(exchanges: Sequence[ExchangeExplained], hops: Sequence[Hop]) -> str:
    """Return an HTML fragment with the content of :func:`text`."""
    parts = []
    if hops and len(exchanges) > 1:
        parts.append(f'<pre style="margin:0">{escape(chr(10).join(_chain(hops)))}</pre>')
    for number, exchange in enumerate(exchanges, 1):
        rows = [
            f'<tr><th scope="row" style="{_CELL};white-space:nowrap">{escape(label)}</th>'
            f'<td style="{_CELL}">{escape(sentence)}</td></tr>'
            for label, sentence in _labelled(exchange)
        ]
        head = escape(_head(number, len(exchanges), exchange))
        parts.append(
            f'<table style="margin:0"><caption style="text-align:left"><b>{head}</b></caption>{"".join(rows)}</table>'
        )
    return (
        '<div style="color-scheme:light dark;font-family:sans-serif;font-size:13px">'
        + "".join(parts)
        + "</div>"
    )


def rows_of(exchange: ExchangeExplained) -> Iterator[tuple[str, str]]:
    """Yield label and sentence of all that is known of an exchange."""
    yield "mode", f"{_MODES[exchange.mode]}: {exchange.why}"
    # One reason may decide for a way and against the others.
    for other in (other for other in exchange.others if other.why != exchange.why):
        yield "not", f"{_MODES[other.mode]}: {other.why}"
    for input_ in exchange.inputs:
        yield from _input(input_, several=len(exchange.inputs) > 1)
    partitions = exchange.partitions
    number = "unknown" if partitions.number is None else f"{partitions.number:,}"
    yield "partitions", f"{number}: {partitions.why}"
    for copied in exchange.copies:
        yield "copied", f"{copied.step}: {names(copied.columns)}: {copied.why}"
    for sentence in exchange.in_place:
        yield "not copied", sentence
    yield "memory", exchange.memory.why
    yield "disk", exchange.disk.why
    for check in exchange.checks:
        yield "checks", f"{_MARKS[check.ok]:<2} {check.name}: {check.why}"
    for back in exchange.falls_back:
        yield "falls back", f"{back.when}: {_MODES[back.mode]}, as {back.why}"
    for advice in exchange.faster:
        yield "faster", f"{advice.do}: {advice.why}"
    for sentence in exchange.unknown:
        yield "unknown", sentence


def _chain(hops: Sequence[Hop]) -> Iterator[str]:
    """Yield a line for each way of rows: an arrow of two lines where they cross between the JVM and Python."""
    crossings = sum(2 if hop.crosses.endswith("back") else bool(hop.crosses) for hop in hops)
    times = "once" if crossings == 1 else f"{crossings} times"
    yield f"headgate chain: rows cross between the JVM and Python {times}"
    ways = [f"{_end(hop.origin)} {'==' if hop.crosses else '--'}> {_end(hop.to)}" for hop in hops]
    width = max(map(len, ways), default=0) + 2
    for way, hop in zip(ways, hops, strict=True):
        sentence = ": ".join(filter(None, (hop.crosses, hop.why)))
        first, *more = wrap(sentence, max(20, WIDTH - width - 2), break_on_hyphens=False) or [""]
        yield f"  {way:<{width}}{first}".rstrip()
        yield from (f"  {'':<{width}}{line}" for line in more)


def _end(name: str) -> str:
    """Return the name of an exchange as its part has it in its head; other names as they are."""
    is_exchange = len(name) == _NAME and set(name) <= set("0123456789abcdef")
    return name[:4] if is_exchange else name


def _labelled(exchange: ExchangeExplained) -> Iterator[tuple[str, str]]:
    """Yield label and sentence; the label is empty where it is that of the sentence before."""
    before = ""
    for label, sentence in rows_of(exchange):
        yield "" if label == before else label, sentence
        before = label


def names(columns: Sequence[str]) -> str:
    """Return names of columns, the first of them if there are many."""
    more = len(columns) - _NAMED
    return ", ".join(columns[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _head(number: int, of: int, exchange: ExchangeExplained) -> str:
    position = "" if of == 1 else f" ({number} of {of})"
    return f"headgate exchange {exchange.name[:4]}{position}"


def _input(input_: InputExplained, *, several: bool) -> Iterator[tuple[str, str]]:
    label = f"input {input_.number}" if several else "input"
    if input_.follows:
        steps = f", after {' and '.join(input_.steps)}" if input_.steps else ""
        yield label, f"what exchange {input_.follows[:4]} returns{steps}, in the same tasks"
    else:
        yield label, _read(input_)
    if input_.spark_reads:
        yield label, f"Spark reads it: {input_.spark_reads}"
    if input_.why_apart:
        yield label, f"Spark takes it through the JVM: {input_.why_apart}"
    producers = input_.producers
    number = "unknown number of" if producers.number is None else f"{producers.number:,}"
    yield label, f"{number} producers: {producers.why}"
    yield label, f"placed {input_.placed}"
    if input_.sort_within:
        yield label, f"sorted within partitions by {names(input_.sort_within)}"


def _read(input_: InputExplained) -> str:
    what = f"source {input_.source}, read by the workers" if input_.source else "DataFrame"
    amount = (
        "rows of unknown size"
        if input_.bytes is None
        else f"{size(input_.bytes)} by Spark's estimate"
    )
    return f"{what}, {amount}"
