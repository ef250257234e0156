"""The calls of keyed streams whose results change with each row."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headgate._arguments import flag, takes, whole
from headgate.stream.api.checks import OPERATOR
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.api.updates import (
    EVERY,
    MAX_ROWS,
    deduplicated,
    first_rows,
    mini_batches,
    running,
    time_to_live,
)
from headgate.stream.operators.top import Top

if TYPE_CHECKING:
    from headgate.stream.windows.aggregates import Aggregate


class UpdateCalls(StreamCalls[StreamT]):
    """A keyed stream, as far as results change with each row."""

    @takes(**OPERATOR)
    def aggregate(
        self,
        *aggregates: Aggregate,
        every: timedelta | str | None = EVERY,
        max_rows: int = MAX_ROWS,
        update_before: bool = True,
        ttl: timedelta | str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Return the aggregates of all rows of each key so far: an update for each key that has changed.

        The result has the keys, the aggregates and a column ``_change_type``: ``"insert"`` for a key that is new,
        ``"update_before"`` and ``"update_after"`` for one that changes, and ``"delete"`` for one without rows, if the
        rows of this stream are changes themselves. Rows that are taken away come before the others of their batch.
        A mini-batch has one update per key. It ends at ``every``, ``max_rows`` and checkpoints. State grows
        with the keys; if rows are changes, also with the distinct values of a minimum, a maximum, a first or last value and
        a distinct count, from which a row is taken away as well.

        Source: Flink's group aggregation with mini-batches.

        Args:
            aggregates: columns of the result. Nulls are left out. Of changes there is no ``"approx_count_distinct"``; ``"first"``
                is the value that has been there for the longest time, ``"last"`` the one of those there that came last.
            every: most time that a row waits for others; ``"0ms"`` for an update with each batch, None for
                any time, up to the next watermark or checkpoint.
            max_rows: number of rows that wait no longer.
            update_before: False to leave out the rows before updates, for a sink that replaces rows by key. Then keys of
                which no aggregate has changed come as well, and operators that need those rows refuse the result.
            ttl: time without rows of a key, by the clock, after which it is forgotten and counted (``numExpiredValues``). Its
                result is not taken away, and further rows of it begin a new one. None for never.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that the stream does not have.
            UnsupportedTypeError: a column of a type that has no such aggregate.
            StreamError: two columns of one name; rows that change, and an approximate count, from which none can be taken away.
        """
        return running(
            self,
            aggregates,
            mini_batches(every, max_rows),
            update_before=update_before,
            ttl=ttl,
            parallelism=parallelism,
            name=name,
        )

    @takes(n=whole(1), descending=flag, **OPERATOR)
    def top(
        self,
        n: int,
        *,
        by: str,
        descending: bool = True,
        rank: str | None = None,
        every: timedelta | str | None = EVERY,
        max_rows: int = MAX_ROWS,
        update_before: bool = True,
        ttl: timedelta | str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Return the first rows of each key by a column, so far: a change for each row that comes or goes.

        The result has the columns of this stream and ``_change_type``. A row that comes among the first is an
        ``"insert"``, and one that another one pushes out a ``"delete"``. With ``rank=``, and for one row per key, the row in a
        place is updated instead: ``"update_before"``, ``"update_after"``. Of equal rows the one that came first is before the
        others. Nulls are last, and NaN is greater than every other number. Rows that are taken away come before the others of
        their batch.

        State has the rows of the result. If the rows of this stream are changes themselves, it has all of them, and each
        mini-batch sorts those of its keys. Source: Flink's Top-N.

        Args:
            n: number of rows.
            by: the column.
            descending: False for the rows with the least values.
            rank: name of a column of places in the result, from 1.
            every: most time that a row waits for others; ``"0ms"`` for changes with each batch, None for any
                time, up to the next watermark or checkpoint.
            max_rows: number of rows that wait no longer.
            update_before: False to leave out the rows before updates, for a sink that replaces rows by key.
            ttl: time without rows of a key, by the clock, after which it is forgotten and counted (``numExpiredValues``). Its
                result is not taken away, and further rows of it begin a new one. None for never.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that the stream does not have.
            UnsupportedTypeError: a column without an order.
            StreamError: a key, or two columns of one name; updates without the rows before.
        """
        top = Top(
            self.schema,
            self._keys,
            n,
            by,
            descending=descending,
            rank=rank,
            update_before=flag("update_before", update_before),
            ttl=time_to_live(ttl),
        )
        batches = mini_batches(every, max_rows)
        return first_rows(self, "top", top, batches, parallelism=parallelism, name=name)

    @takes(**OPERATOR)
    def keep_last(
        self,
        *,
        by: str | None = None,
        every: timedelta | str | None = EVERY,
        max_rows: int = MAX_ROWS,
        update_before: bool = True,
        ttl: timedelta | str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Return the last row of each key so far: an update for each key that has a later one.

        As :meth:`top` of one row, but of rows with equal ``by`` the one that came last is kept. Source: Flink's deduplication.

        Args:
            by: the column by which a row is the last, such as its time; None for the order of arrival.
            every: most time that a row waits for others; ``"0ms"`` for changes with each batch, None for any
                time, up to the next watermark or checkpoint.
            max_rows: number of rows that wait no longer.
            update_before: False to leave out the rows before updates, for a sink that replaces rows by key.
            ttl: time without rows of a key, by the clock, after which it is forgotten and counted (``numExpiredValues``). Its
                result is not taken away, and further rows of it begin a new one. None for never.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that the stream does not have.
            UnsupportedTypeError: a column without an order.
            StreamError: a key; the order of arrival of rows that change; updates without the rows before.
        """
        top = Top(
            self.schema,
            self._keys,
            1,
            by,
            latest=True,
            update_before=flag("update_before", update_before),
            ttl=time_to_live(ttl),
        )
        batches = mini_batches(every, max_rows)
        return first_rows(self, "keep_last", top, batches, parallelism=parallelism, name=name)

    @takes(**OPERATOR)
    def keep_first(
        self,
        *,
        by: str,
        every: timedelta | str | None = EVERY,
        max_rows: int = MAX_ROWS,
        update_before: bool = True,
        ttl: timedelta | str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Return the first row of each key so far by a column: an update for each key that has an earlier one.

        As :meth:`top` of one row with the least value. :meth:`deduplicate` has the first one that arrives.

        Args:
            by: the column by which a row is the first, such as its time.
            every: most time that a row waits for others; ``"0ms"`` for changes with each batch, None for any
                time, up to the next watermark or checkpoint.
            max_rows: number of rows that wait no longer.
            update_before: False to leave out the rows before updates, for a sink that replaces rows by key.
            ttl: time without rows of a key, by the clock, after which it is forgotten and counted (``numExpiredValues``). Its
                result is not taken away, and further rows of it begin a new one. None for never.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that the stream does not have.
            UnsupportedTypeError: a column without an order.
            StreamError: a key; updates without the rows before.
        """
        top = Top(
            self.schema,
            self._keys,
            1,
            by,
            descending=False,
            update_before=flag("update_before", update_before),
            ttl=time_to_live(ttl),
        )
        batches = mini_batches(every, max_rows)
        return first_rows(self, "keep_first", top, batches, parallelism=parallelism, name=name)

    @takes(**OPERATOR)
    def deduplicate(
        self,
        *,
        within: timedelta | str | None = None,
        time: str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Return the rows of which no row of their key was returned shortly before: the first one that arrives.

        A row is dropped and counted (``numDuplicatesDropped``) if its time is less than ``within`` from that of the row of
        its key that was returned last. State has a time for each key, until the watermark or the clock has passed it by
        ``within``. With ``time=``, rows up to the watermark are late: the side output ``"late"`` has them. Null is a key.

        Args:
            within: the time; None for ever, so that state grows with the keys.
            time: name of the column of event times, as the watermarks have it; None for the time of arrival.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that the stream does not have.
            StreamError: rows that change; a source that never ends and makes no watermarks, with ``time=``.
        """
        return deduplicated(self, within, time, parallelism=parallelism, name=name)
