"""The contract of a source as tests that a subclass inherits."""

from __future__ import annotations

import pickle
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import StateVersionError
from headgate.source.api import Boundedness, InputStatus, Source
from headgate.source.testing.job import Checkpoint, Job
from headgate.source.testing.rows import all_rows, difference

if TYPE_CHECKING:
    from headgate.source.testing.job import ReaderSlot

#: Polls without data after which a reader must return a pending future.
_IDLE_POLLS = 100


class SourceTestBase:
    """Checks a source against the contract of sources; runs in pytest and similar runners.

    Subclass it as ``class TestMySource(SourceTestBase)`` and define the source and its expected
    records. Records that are ``pyarrow.RecordBatch`` are compared row by row, so the size of a
    batch does not matter. Rows of one split must always have the same order; splits may have any.

    An unbounded source is read until all expected rows have come and its readers wait. The
    expected rows must be all that it has.
    """

    #: Number of splits of the source; None to skip the check.
    num_splits: ClassVar[int | None] = None
    #: Numbers of readers to test with.
    parallelisms: ClassVar[tuple[int, ...]] = (1, 2, 3)
    #: Seconds without progress after which a test fails.
    timeout: ClassVar[float] = 30.0

    @abstractmethod
    def create_source(self) -> Source[Any, Any, Any]:
        """Return a new source under test, each time with the same records."""

    @abstractmethod
    def expected_records(self) -> Iterable[Any] | pa.Table:
        """Return all records of the source in any order, or one table or batch of all rows."""

    def filters(self) -> Iterable[pc.Expression]:
        """Return filters to test with_filter() with; by default one per column of numbers."""
        schema = self.create_source().schema
        rows = all_rows(self.expected_records())
        for place, field in enumerate(schema or ()):
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                continue
            values = sorted(row[place] for row in rows if row[place] is not None)
            if values:
                yield pc.field(field.name) > values[len(values) // 2]

    # All records.

    def test_every_record_comes_once(self) -> None:
        """Every record comes once with any number of readers, and in the order of its split."""
        orders: dict[str, list[Any]] = {}
        for parallelism in self.parallelisms:
            with self._job(parallelism) as job:
                self._run_all(job)
                self._compare(job.emitted, f"{parallelism} readers")
                self._check_schema(job)
                self._check_splits(job)
                if parallelism == self.parallelisms[0]:
                    orders = _by_split(job.emitted)
                elif _by_split(job.emitted).keys() == orders.keys():
                    _same_order(job.emitted, orders, f"{parallelism} readers")

    def test_it_is_the_same_after_a_pickle(self) -> None:
        """A pickled copy, as the workers get it, has the same records."""
        copy = pickle.loads(pickle.dumps(self.create_source()))  # noqa: S301 - our own bytes
        with Job(copy, timeout=self.timeout) as job:
            self._run_all(job)
            self._compare(job.emitted, "a pickled copy")

    # The end of input, and readers without splits.

    def test_the_end_comes_after_no_more_splits_and_stays(self) -> None:
        """END_OF_INPUT comes after notify_no_more_splits(), and every later poll repeats it."""
        if not self._is_bounded():
            return
        with self._job() as job:
            job.hold_no_more = True
            job.run(lambda: len(job.emitted) >= len(self._rows()), "all records")
            self._until_idle(job, job.readers[0])
            job.release()
            job.run_to_end()
            for _ in range(3):
                if job.readers[0].poll() is not InputStatus.END_OF_INPUT:
                    raise AssertionError("a poll after END_OF_INPUT did not return END_OF_INPUT")
            self._compare(job.emitted, "a reader that ended")
            left = job.readers[0].reader.snapshot_state(1)
            if left:
                raise AssertionError(f"a reader that has ended still has splits: {left}")

    def test_without_splits_it_waits_and_a_split_ends_the_wait(self) -> None:
        """Without splits a poll has nothing, and the pending future completes with a split."""
        with self._job() as job:
            job.hold_splits = True
            slot = job.readers[0]
            self._until_idle(job, slot)
            future = slot.waits_for
            job.release()
            if future is None or (self._rows() and not self._completes(job, future)):
                raise AssertionError(
                    "the future of is_available() stayed pending when a split was added"
                )
            self._run_all(job)
            self._compare(job.emitted, "a reader that had waited")

    # Checkpoints.

    def test_a_restored_checkpoint_gives_exactly_the_rest(self) -> None:
        """A job restored from a checkpoint after any number of records reads exactly the rest."""
        with self._job(2) as job:
            self._run_all(job)
            count = job.num_elements
            orders = _by_split(job.emitted)
        for point in sorted({0, 1, count // 3, count // 2, count - 1, count}):
            if not 0 <= point <= count:
                continue
            checkpoint = self._checkpoint_at(point)
            with self._job(2, checkpoint) as job:
                self._run_all(job)
                where = f"a checkpoint after {point} of {count} records"
                self._compare(job.emitted, where)
                if _by_split(job.emitted).keys() == orders.keys():
                    _same_order(job.emitted, orders, where)

    def test_a_checkpoint_of_a_restored_job_is_a_checkpoint(self) -> None:
        """A job restored twice, with fewer and then more readers, loses and repeats no record."""
        count = self._count_elements(3)
        first = self._checkpoint_at(count // 3, parallelism=3)
        with self._job(1, first) as job:
            job.run_elements(min(count // 3, self._left(job)))
            second = job.checkpoint()
        with self._job(3, second) as job:
            self._run_all(job)
            self._compare(job.emitted, "two checkpoints, one after the other")

    def test_splits_of_a_lost_reader_are_read_again(self) -> None:
        """Other readers read the splits of a lost one, so that every record comes once."""
        count = self._count_elements(2)
        for point in sorted({1, count // 2, count}):
            if not 0 < point <= count:
                continue
            with self._job(2) as job:
                job.run_elements(point)
                job.lose_reader(1)
                self._run_all(job)
                self._compare(job.emitted, f"a reader that was lost after {point} records")

    def test_the_bytes_of_splits_and_checkpoints_are_versioned(self) -> None:
        """Bytes of this version can be read and written again; an unknown version is an error."""
        source = self.create_source()
        checkpoint = self._checkpoint_at(self._count_elements(2) // 2)
        for serializer, stored in (
            (source.enumerator_checkpoint_serializer, [checkpoint.enumerator]),
            (source.split_serializer, checkpoint.splits),
        ):
            for version, data in stored:
                again = serializer.serialize(serializer.deserialize(version, data))
                if again != data:
                    raise AssertionError(f"{data!r} became {again!r} when read and written again")
                try:
                    serializer.deserialize(version + 1000, data)
                except StateVersionError:
                    continue
                raise AssertionError(
                    f"{type(serializer).__name__} read bytes of version {version + 1000}, which "
                    "it cannot know; raise headgate.errors.StateVersionError"
                )

    # Closing.

    def test_close_at_any_moment_leaves_no_thread(self) -> None:
        """A close before the start, in the middle or at the end leaves no thread running."""
        count = self._count_elements(1)
        for point in sorted({0, 1, count // 2, count}):
            before = set(threading.enumerate())
            if point <= count:
                with self._job() as job:
                    job.run_elements(point)
            job = self._job()
            job.close()
            left = set(threading.enumerate()) - before
            deadline = time.monotonic() + self.timeout
            for thread in left:
                thread.join(max(0.0, deadline - time.monotonic()))
            names = sorted(thread.name for thread in left if thread.is_alive())
            if names:
                raise AssertionError(f"closed after {point} records, it left threads: {names}")

    # Optional methods.

    def test_fewer_columns_are_the_same_rows(self) -> None:
        """A source from with_columns() has these columns in this order, and all rows."""
        schema = self.create_source().schema
        names = list(schema.names) if schema is not None else []
        for wanted in [names[-1:], names[::-1][:2], names]:
            reduced = self.create_source().with_columns(wanted) if wanted else None
            if reduced is None:
                continue
            places = [names.index(name) for name in wanted]
            rows = [tuple(row[place] for place in places) for row in self._rows()]
            with Job(reduced, 2, timeout=self.timeout) as job:
                self._run_all(job, len(rows))
                self._check_schema(job)
                self._compare(job.emitted, f"with_columns({wanted})", rows)
            if reduced.schema is None or reduced.schema.names != wanted:
                raise AssertionError(f"with_columns({wanted}) has schema {reduced.schema}")

    def test_a_filter_leaves_no_other_row(self) -> None:
        """A source from with_filter() has exactly the rows for which the filter is true."""
        schema = self.create_source().schema
        if schema is None:
            return
        columns = list(zip(*self._rows(), strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        for expression in self.filters():
            filtered = self.create_source().with_filter(expression)
            if filtered is None:
                continue
            rows = all_rows(table.filter(expression))
            with Job(filtered, 2, timeout=self.timeout) as job:
                self._run_all(job, len(rows))
                self._compare(job.emitted, f"with_filter({expression})", rows)

    # Helpers.

    def _job(self, parallelism: int = 1, checkpoint: Checkpoint | None = None) -> Job:
        source = self.create_source()
        return Job(source, parallelism, checkpoint=checkpoint, timeout=self.timeout)

    def _is_bounded(self) -> bool:
        return self.create_source().boundedness is Boundedness.BOUNDED

    def _rows(self) -> list[Any]:
        return all_rows(self.expected_records())

    def _run_all(self, job: Job, count: int | None = None) -> None:
        if self._is_bounded():
            job.run_to_end()
        else:
            total = len(self._rows()) if count is None else count
            job.run(lambda: len(job.emitted) >= total, f"{total} rows")
            # Go on until the readers wait, so that a surplus row is found.
            job.run(lambda: len(job.emitted) > total or job.is_idle, "readers to wait")

    def _count_elements(self, parallelism: int) -> int:
        with self._job(parallelism) as job:
            self._run_all(job)
            return job.num_elements

    def _left(self, job: Job) -> int:
        """Return 1 if a restored job still has a record, else 0; each record has a row at least."""
        return 1 if len(job.emitted) < len(self._rows()) else 0

    def _checkpoint_at(self, point: int, parallelism: int = 2) -> Checkpoint:
        """Return a checkpoint after ``point`` records; the job reads further records after it."""
        with self._job(parallelism) as job:
            job.run_elements(point)
            checkpoint = job.checkpoint()
            job.run_elements(job.num_elements + self._left(job))
            return checkpoint

    def _until_idle(self, job: Job, slot: ReaderSlot) -> None:
        """Run until the reader waits with a pending future, which may take a few polls."""
        polls = 0

        def is_idle() -> bool:
            nonlocal polls
            polls += slot.waits_for is not None
            return slot.is_idle

        def is_over() -> bool:
            return is_idle() or slot.ended or polls > _IDLE_POLLS

        job.run(is_over, "a reader without anything to read to wait")
        if not slot.ended and polls > _IDLE_POLLS:
            raise AssertionError(
                f"is_available() was complete {_IDLE_POLLS} times while there was no data: "
                "a caller that waits for it is in a busy loop"
            )

    def _completes(self, job: Job, future: Any) -> bool:
        deadline = time.monotonic() + self.timeout
        while not future.done() and time.monotonic() < deadline:
            if not job.context.run_mail() and not job.context.run_async():
                wait([future], timeout=0.02)
        return bool(future.done())

    def _compare(
        self, emitted: list[tuple[str | None, Any]], where: str, rows: list[Any] | None = None
    ) -> None:
        wrong = difference((row for _, row in emitted), self._rows() if rows is None else rows)
        if wrong:
            raise AssertionError(f"{where}: {wrong}")

    def _check_schema(self, job: Job) -> None:
        schema = job.source.schema
        for slot in job.readers:
            for split_id, record in slot.records:
                if schema is None or not isinstance(record, pa.RecordBatch):
                    continue
                if not record.schema.equals(schema):
                    raise AssertionError(
                        f"split {split_id} has schema\n{record.schema}\nthe source has\n{schema}"
                    )

    def _check_splits(self, job: Job) -> None:
        total = job.enumerator.total_splits
        for number, what in ((self.num_splits, "num_splits"), (total, "total_splits")):
            if number is not None and self._is_bounded() and number != len(job.split_ids):
                raise AssertionError(f"{what} is {number}, but {len(job.split_ids)} were assigned")


def _by_split(emitted: list[tuple[str | None, Any]]) -> dict[str, list[Any]]:
    """Return the rows of each split in their order, without rows that belong to no split."""
    orders: dict[str, list[Any]] = {}
    for split_id, row in emitted:
        if split_id is not None:
            orders.setdefault(split_id, []).append(row)
    return orders


def _same_order(
    emitted: list[tuple[str | None, Any]], orders: dict[str, list[Any]], where: str
) -> None:
    """Compare the order within each split with that of another run."""
    for split_id, rows in _by_split(emitted).items():
        if repr(rows) != repr(orders[split_id]):
            raise AssertionError(f"{where}: split {split_id} has another order than before")
