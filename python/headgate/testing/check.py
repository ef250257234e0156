"""Tries many cuts of the same rows and says on what a result depends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate._arguments import amount, takes, whole
from headgate.testing.run import Cut, Trace, check_result, inputs_of, run_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from headgate.batches import BatchFunction, Rows
    from headgate.testing.run import Input

#: Rows of each side that an error shows.
_SHOWN: Final = 3
#: Batches of each call that an error shows.
_CALLS: Final = 8


@dataclass(frozen=True, slots=True)
class _Question:
    """One way in which Spark may cut rows otherwise.

    Attributes:
        vary: the cut of a number.
        says: what is wrong if the result differs.
        remedy: what to do.
        function: the function that it concerns, or ``"broadcast"``; empty for all.
    """

    vary: Callable[[Cut, int], Cut]
    says: str
    remedy: str
    function: str = ""


_QUESTIONS: Final = (
    _Question(
        lambda cut, seed: replace(cut, seed=seed, again=True),
        "a function returns other rows when it is called again",
        "keep nothing outside the function: Spark calls it again if a worker is lost",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, map_batches=True),
        "map depends on how its rows are cut into batches",
        "carry what you need from batch to batch · batches.read_all()",
        "map",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, producers=True, broadcast=True),
        "the result depends on which rows stand beside all those of an input that is broadcast",
        "take each row of the other input by itself, and return no row of the small one alone: as an inner or left join",
        "broadcast",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, producers=True),
        "map depends on how the rows are divided among its tasks",
        "leave to reduce what needs rows of other tasks",
        "map",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, reduce_batches=True),
        "reduce depends on how its rows are cut into batches",
        "carry what you need from batch to batch · batches.read_all() · headgate.per_key",
        "reduce",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, producers=True, combine=True),
        "combine depends on which rows it gets, or reduce does not take what it returns in their place",
        "merge only rows with the same key, into rows from which reduce makes the same result: sums, counts, "
        "least and greatest values, sets; a mean needs a sum and a count",
        "combine",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, producers=True, order=True),
        "reduce depends on the order in which rows of different tasks arrive",
        "sort_within= · sort the rows · headgate.per_key(..., sort=...)",
        "reduce",
    ),
    _Question(
        lambda cut, seed: replace(cut, seed=seed, num_partitions=1 + seed % 5),
        "reduce depends on which keys are in one partition",
        "group the rows by their key: a partition has many keys, or none · headgate.per_key",
        "reduce",
    ),
)


@takes(
    num_partitions=whole(1, 8000),
    tries=whole(1),
    seed=whole(0),
    tolerance=amount,
)
def check(
    rows: Rows | Iterable[Rows] | Sequence[Input],
    by: Any = None,
    map: BatchFunction | None = None,  # noqa: A002 - named as in exchange()
    reduce: BatchFunction | None = None,
    schema: pa.Schema | None = None,
    *,
    combine: BatchFunction | None = None,
    map_schema: pa.Schema | None = None,
    sort_within: str | Iterable[str] | None = None,
    num_partitions: int = 2,
    tries: int = 20,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> pa.Table:
    """Check that the result has the same rows however Spark cuts the input; return the result.

    It varies one thing at a time: the batches that ``map`` and ``reduce`` get, how rows are divided among
    producers, the rows that ``combine`` gets, the order in which they arrive, the partitions in which keys meet, and the rows that
    stand beside an input that is broadcast. Batches and partitions without rows occur. It also leaves each function half done and calls it again. The order of the result's
    rows does not matter.

    Args:
        rows: as in :func:`headgate.testing.run`, like the following; some hundred rows with several keys.
        by: which partition each row goes to.
        map: makes the rows to send.
        reduce: makes the result.
        schema: the columns of the result.
        combine: merges rows before they are sent. The cut with which all others are compared does not call it.
        map_schema: the columns that ``map`` returns.
        sort_within: columns by which ``reduce`` gets its rows sorted.
        num_partitions: partitions of the cut with which all others are compared.
        tries: number of cuts of each kind.
        seed: of the first cut.
        tolerance: relative difference of floats that are equal, since a sum depends on the order.

    Raises:
        AssertionError: the result depends on the cut. The text says on what, and shows rows and batches.
        Exception: what a function raised, with a note about the cut.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.testing import check
        >>> clicks = pa.table({"user": ["ann", "bob"] * 20, "n": range(40)})
        >>> def firsts(batches):
        ...     for batch in batches:
        ...         yield batch.slice(0, 1)
        >>> check(clicks, by="user", reduce=firsts)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        AssertionError: reduce depends on how its rows are cut into batches...
    """
    inputs = inputs_of(rows, by, map, map_schema, sort_within, combine)
    check_result(inputs, reduce, schema)
    basis = Cut(seed=seed, num_partitions=num_partitions)
    expected = run_inputs(inputs, reduce, schema, basis, Trace())
    functions = {
        "map": any(side.map is not None for side in inputs),
        "combine": any(side.combine is not None for side in inputs),
        "reduce": reduce is not None,
        "broadcast": any(side.broadcast for side in inputs),
    }
    for question in _QUESTIONS:
        if not functions.get(question.function, True):
            continue
        for number in range(seed, seed + tries):
            cut = question.vary(basis, number)
            trace = Trace()
            try:
                got = run_inputs(inputs, reduce, schema, cut, trace)
            except Exception as error:
                error.add_note(_cut_text(cut, trace))
                raise
            missing, unexpected = _difference(expected, got, tolerance)
            if missing or unexpected:
                raise AssertionError(_text(question, cut, trace, missing, unexpected))
    return expected


def _difference(expected: pa.Table, got: pa.Table, tolerance: float) -> tuple[list[Any], list[Any]]:
    """Return the rows that only one of the tables has."""
    left = sorted(map(_row, expected.to_pylist()), key=_rank)
    right = sorted(map(_row, got.to_pylist()), key=_rank)
    missing, unexpected = [], []
    at = 0
    for row in left:
        while (
            at < len(right)
            and _rank(right[at]) < _rank(row)
            and not _same(row, right[at], tolerance)
        ):
            unexpected.append(right[at])
            at += 1
        if at < len(right) and _same(row, right[at], tolerance):
            at += 1
        else:
            missing.append(row)
    return missing, unexpected + right[at:]


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.items())


def _rank(row: tuple[Any, ...]) -> str:
    return repr(_rounded(row))


def _rounded(value: Any) -> Any:
    """Return a value whose floats have so few digits that almost equal ones are sorted together."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return _rounded(sorted(value.items())) if isinstance(value, dict) else value


def _same(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        both = math.isnan(left) and math.isnan(right)
        return both or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, dict) and isinstance(right, dict):
        left, right = sorted(left.items()), sorted(right.items())
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(
            _same(*pair, tolerance) for pair in zip(left, right, strict=True)
        )
    return bool(left == right)


def _text(
    question: _Question, cut: Cut, trace: Trace, missing: list[Any], unexpected: list[Any]
) -> str:
    lines = [question.says]
    for name, rows in (("missing", missing), ("instead", unexpected)):
        if rows:
            sample = ", ".join(str(dict(row)) for row in rows[:_SHOWN])
            more = f" and {len(rows) - _SHOWN} more rows" if len(rows) > _SHOWN else ""
            lines.append(f"  {name}  {sample}{more}")
    lines += [f"  do       {question.remedy}", f"  cut      {_cut_text(cut, trace)}"]
    return "\n".join(lines)


def _cut_text(cut: Cut, trace: Trace) -> str:
    """Return a cut in words: what calls of functions got."""
    calls = []
    for name, each in trace.batches.items():
        shown = " · ".join(" + ".join(map(str, sizes)) or "nothing" for sizes in each[:_CALLS])
        calls.append(f"rows of each call of {name}: {shown}{' ...' if len(each) > _CALLS else ''}")
    return "\n           ".join([f"cut={cut}", *calls])
