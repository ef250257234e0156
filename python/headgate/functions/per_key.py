"""per_key and per_groups: a function of yours, called with the rows of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, get_args

from headgate._arguments import function as check_function
from headgate._arguments import names, size
from headgate._matches import close_matches
from headgate.batches import joined, refuse_early_return, returned
from headgate.errors import OptionError, UnknownColumnError
from headgate.functions.libraries import LIBRARIES, PANDAS, GroupForm, as_library
from headgate.functions.single_rows import SingleRows

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate._group_size import GroupSize
    from headgate.batches import Batches, Rows
    from headgate.functions.groups import SortedRows
    from headgate.functions.libraries import Library

#: Bytes of rows for one call of a function that takes many groups, unless a batch of sorted rows has more.
_CALL_BYTES: Final = 4 << 20
#: Bytes of a returned batch into which smaller ones are joined: each batch costs Spark some hundred microseconds.
_RETURNED_BYTES: Final = 1 << 20
#: Of the function, in errors.
_NAME: Final = "the function by key"


def per_key(
    keys: str | Iterable[str],
    function: Callable[[Any], Iterable[Rows] | Rows | Mapping[str, Any]],
    *,
    sort: str | Iterable[str] = (),
    as_: GroupForm = "arrow",
    memory: int | str = "64m",
) -> PerKey:
    """Return a ``reduce`` that calls a function once for each key, with all rows of the key.

    Rows of one key must be in one partition, as after ``exchange(..., by=keys)``. The rows are sorted by the
    keys, in files if that would take more than ``memory``, so memory is bounded by it and by the largest group,
    beside what the function and its library make of the group: pandas copies it. A group of more than 8 MiB
    comes in several chunks. With ``as_="batches"`` a group may be larger than memory: the function gets its
    sorted rows batch by batch, which are read from the files as it asks for them.
    Keys that Spark takes for equal are one group: nulls, and NaN. Source: PySpark's ``applyInArrow``.

    Args:
        keys: the key columns.
        function: gets a ``pyarrow.Table``, or a DataFrame of polars or pandas, and returns one of these,
            a record batch, or an iterator of them; or a dict of a value for each column, which is one row.
            With ``as_="batches"`` it gets a :class:`headgate.Batches` of the group, which it need not
            take to its end, and which nothing can take once the call has ended.
        sort: columns by which the rows of a group are sorted, ascending, nulls first. Rows that are
            equal there keep the order in which they came.
        as_: ``"arrow"``, ``"polars"``, ``"pandas"`` or ``"batches"``: what the function gets. pandas makes floats of
            whole numbers beside nulls, and whole floats are taken back as whole numbers; with
            ``"pandas_nullable"`` whole numbers and booleans have pandas' types ``Int64``, ``boolean`` ....
        memory: bytes that rows may take that wait to be sorted, or text such as ``"64m"``.

    Raises:
        OptionError: an argument has a value that it does not take.

    Example:
        >>> import headgate as hg
        >>> import pyarrow as pa
        >>> rows = pa.record_batch({"user": ["b", "a", "b"], "at": [3, 1, 2]})
        >>> def latest(group):
        ...     return group.slice(group.num_rows - 1)
        >>> reduce = hg.per_key("user", latest, sort="at")
        >>> [batch.to_pylist() for batch in reduce([rows])]
        [[{'user': 'a', 'at': 1}, {'user': 'b', 'at': 3}]]
    """
    return PerKey(keys, function, sort, as_, memory, each=True)


def per_groups(
    keys: str | Iterable[str],
    function: Callable[[Any, pa.Array], Iterable[Rows] | Rows | Mapping[str, Any]],
    *,
    sort: str | Iterable[str] = (),
    as_: Library = "arrow",
    memory: int | str = "64m",
) -> PerKey:
    """Return a ``reduce`` that calls a function with many whole groups at a time, for vectorised code.

    Like :func:`per_key`, but the function gets the rows of several groups, one group after the other, and
    the offsets of the groups: group ``i`` has the rows from ``offsets[i]`` to ``offsets[i + 1]``. A call has
    about 4 MiB of rows, or one larger group.

    Args:
        keys: the key columns.
        function: gets the rows, and the offsets as a ``pyarrow.Int64Array``, one more than there are groups.
        sort: columns by which the rows of a group are sorted.
        as_: what the rows are, as in :func:`per_key`, but no ``"batches"``.
        memory: bytes that rows may take that wait to be sorted.

    Raises:
        OptionError: an argument has a value that it does not take.

    Example:
        >>> import headgate as hg
        >>> import pyarrow as pa
        >>> rows = pa.record_batch({"user": ["b", "a", "b"], "n": [3, 1, 2]})
        >>> def firsts(groups, offsets):
        ...     return groups.take(offsets[:-1])
        >>> [batch.to_pylist() for batch in hg.per_groups("user", firsts)([rows])]
        [[{'user': 'a', 'n': 1}, {'user': 'b', 'n': 3}]]
    """
    return PerKey(keys, function, sort, as_, memory, each=False)


class PerKey:
    """A ``reduce`` that sorts the rows and calls a function with groups; see :func:`per_key`.

    Attributes:
        keys: the key columns.
        sort: columns by which the rows of a group are sorted.
        largest_group: the largest group of the last call, once its rows were taken; None before, and without rows.
            Of the groups within one sorted batch of 1 MiB only the one with the most rows counts.
    """

    def __init__(
        self,
        keys: str | Iterable[str],
        function: Callable[..., Iterable[Rows] | Rows | Mapping[str, Any]],
        sort: str | Iterable[str],
        as_: GroupForm,
        memory: int | str,
        *,
        each: bool,
    ) -> None:
        self.keys = list(names("keys", keys))
        if not self.keys:
            raise OptionError("keys is empty", remedy="name a column")
        self.sort = list(names("sort", sort))
        form = "def f(group): ..." if each else "def f(groups, offsets): ..."
        check_function(
            "function", function, 1 if each else 2, f"{form}, which returns a table or a DataFrame"
        )
        forms = get_args(GroupForm) if each else LIBRARIES
        if as_ not in forms:
            choices = " · ".join(f'as_="{name}"' for name in forms)
            is_of_per_key = not each and as_ in get_args(GroupForm)
            raise OptionError(
                f"as_={as_!r} is for per_key, whose function gets one group"
                if is_of_per_key
                else f"as_={as_!r} is unknown",
                remedy=f"per_key(...) · {choices}" if is_of_per_key else choices,
            )
        self._function = function
        self._as = as_
        self._memory = size("memory", memory, 1)
        self._each = each
        self.largest_group: GroupSize | None = None

    def __call__(self, batches: Batches | Iterable[pa.RecordBatch]) -> Iterator[Any]:
        """Yield what the function returns for the groups, in ascending order of the keys.

        Small batches are joined.
        """
        return self.sorted_within(batches, ())

    def sorted_within(
        self, batches: Iterable[pa.RecordBatch], order: Iterable[str | tuple[str, ...]]
    ) -> Iterator[Any]:
        """Yield as a call does, with one sort, what it would yield for batches in this order.

        Args:
            batches: the rows, in any order.
            order: columns, or fields as tuples of names, that say the order of rows that are equal in keys and ``sort``.
        """
        return joined(self._batches(batches, order), _RETURNED_BYTES)

    def _batches(
        self, batches: Iterable[pa.RecordBatch], order: Iterable[str | tuple[str, ...]]
    ) -> Iterator[Any]:
        from headgate.functions.groups import sorted_rows  # noqa: PLC0415 - imports pyarrow
        from headgate.functions.largest import LargestGroup  # noqa: PLC0415 - imports pyarrow

        by = [*self.keys, *(name for name in self.sort if name not in self.keys)]
        largest, self.largest_group = LargestGroup(self.keys), None
        whole_order = [*by, *(name for name in order if name not in by)]
        ordered = sorted_rows(_checked(batches, by), self.keys, whole_order, self._memory, largest)
        single = SingleRows(_RETURNED_BYTES, nan_is_null=self._as in PANDAS)
        with closing(ordered):
            for result in self._returned(ordered):
                if isinstance(result, Mapping):
                    yield from single.add(result)
                else:
                    yield from single.take()
                    yield from returned(_NAME, result)
            yield from single.take()
        self.largest_group = largest.size

    def _returned(self, ordered: SortedRows) -> Iterator[Any]:
        """Yield what each call of the function returns."""
        from headgate.functions.groups import batches_of_groups, tables_of_groups  # noqa: PLC0415

        if self._as == "batches":
            for group in batches_of_groups(ordered):
                result = self._function(group)
                refuse_early_return(_NAME, result, [group])
                yield result
            return
        for table, offsets in tables_of_groups(ordered, _CALL_BYTES):
            if self._each:
                for start, end in pairwise(offsets.to_pylist()):
                    yield self._function(as_library(table.slice(start, end - start), self._as))
            else:
                yield self._function(as_library(table, self._as), offsets)
            del table  # before the rows of the next groups are gathered


def _checked(batches: Iterable[pa.RecordBatch], by: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; refuse the first one if it lacks a column."""
    for number, batch in enumerate(batches):
        names = batch.schema.names
        missing = next((name for name in by if name not in names), None)
        if number == 0 and missing is None:
            from headgate.functions.sorting import check_sortable  # noqa: PLC0415 - imports pyarrow

            for name in by:
                check_sortable(name, batch.schema.field(name).type)
        if missing is not None:
            near = close_matches(missing, names)
            raise UnknownColumnError(
                f"there is no column {missing!r} in the rows",
                have=", ".join(names) or "no columns",
                remedy=" · ".join(map(repr, near)),
                details={"column": missing, "columns": names, "close": near},
            )
        yield batch
