"""The test kit passes a correct source, and each wrong source fails the test meant for it."""

import dataclasses
import threading
from concurrent.futures import Future

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import StateVersionError
from headgate.source import (
    Boundedness,
    InputStatus,
    JsonSerializer,
    Source,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
)
from headgate.source.base import AVAILABLE
from headgate.source.testing import SourceTestBase

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})
END = 40


def batch_of(numbers):
    return pa.record_batch([list(numbers), [f"row {n}" for n in numbers]], schema=SCHEMA)


@dataclasses.dataclass(frozen=True)
class Range(SourceSplit):
    start: int
    end: int
    position: int = 0

    @property
    def split_id(self):
        return f"{self.start}-{self.end}"


@dataclasses.dataclass(frozen=True)
class Left:
    ranges: tuple = ()


class LeftSerializer(JsonSerializer):
    def deserialize(self, version, data):
        left = super().deserialize(version, data)
        return Left(tuple(tuple(one) for one in left.ranges))


class Ranges(SplitEnumerator):
    """Assigns ranges on request."""

    takes_back = True

    def __init__(self, context, left):
        self.context = context
        self.left = [Range(*one) for one in left.ranges]

    def start(self):
        pass

    def add_reader(self, subtask_id):
        pass

    def handle_split_request(self, subtask_id, requester_hostname):
        if self.left:
            self.context.assign_split(self.left.pop(), subtask_id)
        else:
            self.context.signal_no_more_splits(subtask_id)

    def add_splits_back(self, splits, subtask_id):
        if self.takes_back:
            self.left += splits

    def snapshot_state(self, checkpoint_id):
        return Left(tuple(dataclasses.astuple(one) for one in self.left))

    def close(self):
        pass


class RangeReader(SourceReader):
    """A correct reader without the high-level API: three rows per poll, no threads."""

    def __init__(self, context, columns=("n", "text"), expression=None):
        self.context = context
        self.columns, self.expression = list(columns), expression
        self.splits = {}
        self.outputs = {}
        self.future = Future()
        self.no_more = False

    def start(self):
        self.context.send_split_request()

    def poll_next(self, output):
        for split_id, split in self.splits.items():
            self.outputs[split_id] = output.create_output_for_split(split_id)
            return self.read(split, output)
        if self.no_more:
            return InputStatus.END_OF_INPUT
        if self.future.done():
            self.future = Future()
        return InputStatus.NOTHING_AVAILABLE

    def read(self, split, output):
        first = split.start + split.position
        numbers = range(first, min(first + 3, split.end))
        if numbers:
            self.emit(batch_of(numbers), self.outputs[split.split_id])
            moved = dataclasses.replace(split, position=numbers.stop - split.start)
            self.splits[split.split_id] = moved
        else:
            self.finish(split, output)
        return InputStatus.MORE_AVAILABLE

    def emit(self, batch, output):
        if self.expression is not None:
            batch = pa.Table.from_batches([batch]).filter(self.expression).to_batches()
            batch = batch[0] if batch else batch_of([])
        output.collect(batch.select(self.columns))

    def finish(self, split, output):
        del self.splits[split.split_id]
        output.release_output_for_split(split.split_id)
        self.context.send_split_request()

    def is_available(self):
        return AVAILABLE if self.splits else self.future

    def wake(self):
        if not self.future.done():
            self.future.set_result(None)

    def add_splits(self, splits):
        self.splits.update((split.split_id, split) for split in splits)
        self.wake()

    def notify_no_more_splits(self):
        self.no_more = True
        self.wake()

    def snapshot_state(self, checkpoint_id):
        return list(self.splits.values())

    def close(self):
        pass


class RangeSource(Source):
    boundedness = Boundedness.BOUNDED
    split_serializer = JsonSerializer(Range)
    enumerator_checkpoint_serializer = LeftSerializer(Left)
    reader, enumerator = RangeReader, Ranges

    def __init__(self, columns=("n", "text"), expression=None):
        self.columns, self.expression = list(columns), expression

    @property
    def schema(self):
        return pa.schema([SCHEMA.field(name) for name in self.columns])

    def create_enumerator(self, context):
        return self.enumerator(context, Left(((0, 7), (7, 20), (20, 20), (20, END))))

    def restore_enumerator(self, context, checkpoint):
        return self.enumerator(context, checkpoint)

    def create_reader(self, context):
        return self.reader(context, self.columns, self.expression)

    def with_columns(self, columns):
        return type(self)(columns, self.expression)

    def with_filter(self, expression):
        return type(self)(self.columns, expression)


# Wrong sources.


class LosesFetched(RangeReader):
    """Its snapshot skips the rows of the next poll."""

    def snapshot_state(self, checkpoint_id):
        return [
            dataclasses.replace(s, position=min(s.position + 3, s.end - s.start))
            for s in self.splits.values()
        ]


class Repeats(RangeReader):
    """Its snapshot is always at the beginning of a split."""

    def snapshot_state(self, checkpoint_id):
        return [dataclasses.replace(s, position=0) for s in self.splits.values()]


class EndsEarly(RangeReader):
    """It returns END_OF_INPUT whenever it has no split."""

    def poll_next(self, output):
        status = super().poll_next(output)
        nothing = status is InputStatus.NOTHING_AVAILABLE
        return InputStatus.END_OF_INPUT if nothing else status


class TakesTheEndBack(RangeReader):
    """It returns END_OF_INPUT only once."""

    ended = False

    def poll_next(self, output):
        status = super().poll_next(output)
        if status is InputStatus.END_OF_INPUT and self.ended:
            return InputStatus.NOTHING_AVAILABLE
        self.ended = status is InputStatus.END_OF_INPUT
        return status


class NeverWakes(RangeReader):
    """A new split does not complete the future that it returned."""

    def wake(self):
        self.future = AVAILABLE


class NeverWaits(RangeReader):
    """Its future is always complete."""

    def is_available(self):
        return AVAILABLE


class LeavesThread(RangeReader):
    """It starts a thread and never ends it."""

    stop = threading.Event()

    def start(self):
        super().start()
        threading.Thread(target=self.stop.wait, args=(60,), name="left-behind", daemon=True).start()


class Reorders(RangeReader):
    """The order of its rows depends on the number of readers."""

    def emit(self, batch, output):
        if self.context.current_parallelism > 1:
            batch = batch.take(list(range(batch.num_rows))[::-1])
        super().emit(batch, output)


class FiltersNothing(RangeReader):
    """Its with_filter() does not filter."""

    def __init__(self, context, columns, expression):
        super().__init__(context, columns, None)


class SwapsColumns(RangeReader):
    """Its with_columns() does not change the order of columns."""

    def emit(self, batch, output):
        self.columns = sorted(self.columns)
        super().emit(batch, output)


class ReleasesEarly(RangeReader):
    """It releases the output of a split before its last records."""

    def read(self, split, output):
        if split.start + split.position + 3 >= split.end:
            output.release_output_for_split(split.split_id)
        return super().read(split, output)


class KeepsNothing(Ranges):
    """It drops the splits of lost readers."""

    takes_back = False


class AnyVersion(LeftSerializer):
    """Its serializer does not check the version."""

    def deserialize(self, version, data):
        return super().deserialize(self.version, data)


class Forgetful(RangeSource):
    """Its enumerator drops the splits of lost readers."""

    enumerator = KeepsNothing


class Careless(RangeSource):
    """Its serializer of checkpoints does not check the version."""

    enumerator_checkpoint_serializer = AnyVersion(Left)


class Unpicklable(RangeSource):
    """It holds a lock, which cannot be pickled."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lock = threading.Lock()


class WithReader(RangeSource):
    """The correct source with a wrong reader, found by name so that it can be pickled."""

    def __init__(self, columns=("n", "text"), expression=None, reader=""):
        super().__init__(columns, expression)
        self.reader_name = reader

    def create_reader(self, context):
        return globals()[self.reader_name](context, self.columns, self.expression)

    def with_columns(self, columns):
        return WithReader(columns, self.expression, self.reader_name)

    def with_filter(self, expression):
        return WithReader(self.columns, expression, self.reader_name)


class RangeTests(SourceTestBase):
    num_splits = 4

    def create_source(self):
        return RangeSource()

    def expected_records(self):
        return [batch_of(range(END))]


class TestRightSource(RangeTests):
    """The correct source passes every test."""


def outcomes(source):
    """Return the names of the tests that fail for a source, with their errors."""

    class Tests(RangeTests):
        timeout = 0.3  # For events that never come.

        def create_source(self):
            return source()

    failed = {}
    for name in [name for name in dir(Tests) if name.startswith("test_")]:
        try:
            getattr(Tests(), name)()
        except (AssertionError, TypeError) as error:
            failed[name] = str(error)
    return failed


RESTORED = "test_a_restored_checkpoint_gives_exactly_the_rest"
THE_END = "test_the_end_comes_after_no_more_splits_and_stays"
WAITS = "test_without_splits_it_waits_and_a_split_ends_the_wait"


@pytest.mark.parametrize(
    ("reader", "test", "says"),
    [
        (LosesFetched, RESTORED, "missing"),
        (Repeats, RESTORED, "too much"),
        (EndsEarly, THE_END, "before notify_no_more_splits"),
        (TakesTheEndBack, THE_END, "did not return END_OF_INPUT"),
        (NeverWakes, WAITS, "stayed pending when a"),
        (NeverWaits, WAITS, "busy loop"),
        (Reorders, "test_every_record_comes_once", "another order"),
        (FiltersNothing, "test_a_filter_leaves_no_other_row", "too much"),
        (SwapsColumns, "test_fewer_columns_are_the_same_rows", "schema"),
        (ReleasesEarly, "test_every_record_comes_once", "after it was reported finished"),
    ],
)
def test_a_wrong_reader_fails(reader, test, says):
    failed = outcomes(lambda: WithReader(reader=reader.__name__))
    assert says in failed[test]


def test_a_thread_that_is_left_fails():
    LeavesThread.stop.clear()
    failed = outcomes(lambda: WithReader(reader="LeavesThread"))
    LeavesThread.stop.set()
    assert set(failed) == {"test_close_at_any_moment_leaves_no_thread"}
    assert "left-behind" in failed["test_close_at_any_moment_leaves_no_thread"]


def test_splits_that_are_not_taken_back_fail():
    failed = outcomes(Forgetful)
    assert "missing" in failed["test_splits_of_a_lost_reader_are_read_again"]


def test_a_serializer_that_reads_anything_fails():
    failed = outcomes(Careless)
    assert set(failed) == {"test_the_bytes_of_splits_and_checkpoints_are_versioned"}
    assert "version 1001" in failed["test_the_bytes_of_splits_and_checkpoints_are_versioned"]


def test_a_source_that_cannot_be_pickled_fails():
    assert set(outcomes(Unpicklable)) == {"test_it_is_the_same_after_a_pickle"}


def test_wrong_expectations_fail():
    class TooMany(RangeTests):
        num_splits = 5

        def expected_records(self):
            return batch_of(range(END + 1))

    with pytest.raises(AssertionError, match=r"1 of missing: \(40, 'row 40'\)"):
        TooMany().test_every_record_comes_once()


def test_the_right_source_knows_versions():
    with pytest.raises(StateVersionError):
        RangeSource().split_serializer.deserialize(7, b"{}")


def test_filters_are_made_of_number_columns():
    (expression,) = RangeTests().filters()
    assert str(expression) == str(pc.field("n") > 20)
