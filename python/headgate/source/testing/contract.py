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

#: Polls without anything to read after which a reader has to have an open future.
_IDLE_POLLS = 100


class SourceTestBase:
    """Checks a source against what every source promises; runs in pytest, or in anything like it.

    Subclass it as ``class TestMySource(SourceTestBase)`` and say what the source is and what is in
    it. Where records are ``pyarrow.RecordBatch`` their rows are compared: where a batch ends does not
    matter. Rows of one split must always come in the same order; splits come in any order.

    An unbounded source is read until all expected rows are there and its readers wait; they must be
    all that it has.
    """

    #: How many splits the source has; None when that is not to be checked.
    num_splits: ClassVar[int | None] = None
    #: Numbers of readers to try.
    parallelisms: ClassVar[tuple[int, ...]] = (1, 2, 3)
    #: Seconds without any progress after which a test fails.
    timeout: ClassVar[float] = 30.0

    @abstractmethod
    def create_source(self) -> Source[Any, Any, Any]:
        """Return the source under test, each time a new one of the same content."""

    @abstractmethod
    def expected_records(self) -> Iterable[Any] | pa.Table:
        """Return all records of the source in any order, or one table or batch of all rows."""

    def filters(self) -> Iterable[pc.Expression]:
        """Return filters to try on a source that takes them; by default one per number column."""
        schema = self.create_source().schema
        rows = all_rows(self.expected_records())
        for place, field in enumerate(schema or ()):
            values = sorted(row[place] for row in rows if row[place] is not None)
            if values and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                yield pc.field(field.name) > values[len(values) // 2]

    # All of it, once.

    def test_every_record_comes_once(self) -> None:
        """Every record once, whatever the number of readers; each split in its one order."""
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
        """A pickled copy, as workers get it, has the same records."""
        copy = pickle.loads(pickle.dumps(self.create_source()))  # noqa: S301 - our own bytes
        with Job(copy, timeout=self.timeout) as job:
            self._run_all(job)
            self._compare(job.emitted, "a pickled copy")

    # The end, and nothing.

    def test_the_end_comes_after_no_more_splits_and_stays(self) -> None:
        """No END_OF_INPUT before notify_no_more_splits(); after the end, the end for ever."""
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
                    raise AssertionError("a poll after END_OF_INPUT did not say END_OF_INPUT again")
            self._compare(job.emitted, "a reader that ended")
            left = job.readers[0].reader.snapshot_state(1)
            if left:
                raise AssertionError(f"a reader that has ended still has splits: {left}")

    def test_without_splits_it_waits_and_a_split_ends_the_wait(self) -> None:
        """Without splits NOTHING_AVAILABLE and an open future, which a split completes."""
        with self._job() as job:
            job.hold_splits = True
            slot = job.readers[0]
            self._until_idle(job, slot)
            future = slot.waits_for
            job.release()
            if future is None or (self._rows() and not self._completes(job, future)):
                raise AssertionError(
                    "the future of is_available() was open when a split was added, and stayed open"
                )
            self._run_all(job)
            self._compare(job.emitted, "a reader that had waited")

    # Checkpoints.

    def test_a_restored_checkpoint_gives_exactly_the_rest(self) -> None:
        """Restored after any number of records, in other readers, exactly the rest follows."""
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
        """Restored twice, with fewer and then with more readers, nothing is lost or repeated."""
        count = self._count_elements(3)
        first = self._checkpoint_at(count // 3, parallelism=3)
        with self._job(1, first) as job:
            job.run_elements(min(count // 3, self._left(job)))
            second = job.checkpoint()
        with self._job(3, second) as job:
            self._run_all(job)
            self._compare(job.emitted, "two checkpoints, one after the other")

    def test_splits_of_a_lost_reader_are_read_again(self) -> None:
        """What a lost reader was given is read by others, exactly once in the end."""
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
        """Bytes of this version can be read and written again; those of an unknown one cannot."""
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
        """Closed before the start, in the middle and at the end, it leaves no thread running."""
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

    # What a source may offer.

    def test_fewer_columns_are_the_same_rows(self) -> None:
        """If with_columns() gives a source, it has these columns in this order, and all rows."""
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
        """If with_filter() gives a source, it has exactly the rows for which the filter is true."""
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
            # One row too many is worth waiting for: until the readers have nothing more, too.
            job.run(lambda: len(job.emitted) > total or job.is_idle, "readers to wait")

    def _count_elements(self, parallelism: int) -> int:
        with self._job(parallelism) as job:
            self._run_all(job)
            return job.num_elements

    def _left(self, job: Job) -> int:
        """Return the records that a restored job may still be asked for; each has a row at least."""
        return 1 if len(job.emitted) < len(self._rows()) else 0

    def _checkpoint_at(self, point: int, parallelism: int = 2) -> Checkpoint:
        """Return a checkpoint after so many records; the job goes on for a while after it."""
        with self._job(parallelism) as job:
            job.run_elements(point)
            checkpoint = job.checkpoint()
            job.run_elements(job.num_elements + self._left(job))
            return checkpoint

    def _until_idle(self, job: Job, slot: ReaderSlot) -> None:
        """Run until the reader waits with an open future; it may need a few polls more."""
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
                f"is_available() was done {_IDLE_POLLS} times while there was nothing to read: "
                "who waits for it would turn in a busy loop"
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
                        f"split {split_id} has schema\n{record.schema}\nthe source says\n{schema}"
                    )

    def _check_splits(self, job: Job) -> None:
        total = job.enumerator.total_splits
        for said, what in ((self.num_splits, "num_splits"), (total, "total_splits")):
            if said is not None and self._is_bounded() and said != len(job.split_ids):
                raise AssertionError(f"{what} is {said}, handed out were {len(job.split_ids)}")


def _by_split(emitted: list[tuple[str | None, Any]]) -> dict[str, list[Any]]:
    """Return the rows of each split in their order; rows without a split are left out."""
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
            raise AssertionError(f"{where}: split {split_id} came in another order than before")
