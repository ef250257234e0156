"""Calls the user's functions and distinguishes their exceptions from all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate.batches import Batches, refuse_early_return, returned
from headgate.control.cause import message_of, one_line, sendable, traceback_of
from headgate.functions.per_key import PerKey
from headgate.spark.tasks.timing import FUNCTION, INPUT, Clock
from headgate.spark.tasks.tracebacks import users_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from headgate.batches import BatchFunction

#: Most characters of a user's traceback in an error.
MAX_TEXT: Final = 64 * 1024
_SUMMARY: Final = 500


class UserFunctionFailed(Exception):
    """Carries the user's own exception, which is ``__cause__``, to the task body.

    Attributes:
        name: of the function.
        error: to raise in Spark's task: the user's own, or another one if Spark could not print it:
            its text has megabytes, or UTF-8 cannot encode it.
        summary: one line: which function raised what.
        text: the user's traceback, from the user's first frame on.
    """

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(name)
        self.name = name
        line = one_line(message_of(error), _SUMMARY)
        self.summary = f"{name} raised {type(error).__name__}" + (f": {line}" if line else "")
        text = traceback_of(error, users_frames(error))
        self.text = sendable(text, MAX_TEXT)
        self.error: BaseException = error
        if self.text != text:
            self.error = errors.UserFunctionError(self.summary).caused_by(self.text)


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a function gets the rows of its partition.

    Attributes:
        by: columns, or fields as tuples of names; ascending, nulls first.
        memory: bytes of rows that may wait in memory to be sorted.
    """

    by: tuple[str | tuple[str, ...], ...]
    memory: int


class Source(Batches):
    """Hands batches to a user function and keeps an error of their origin.

    Args:
        batches: their origin.
        schema: of the batches if there are none.
        count: called with each batch before the function gets it.
        clock: measures how long the function waits for batches.
        order: in which the function gets the rows; None as they come. It is an attribute too.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        count: Callable[[pa.RecordBatch], object],
        clock: Clock | None = None,
        order: Order | None = None,
    ) -> None:
        super().__init__(batches, schema)
        self._empty = schema
        self.order = order
        self._count = count
        self._clock = Clock() if clock is None else clock
        self.error: BaseException | None = None
        self.ended = False

    def ordered(self) -> Batches:
        """Return the batches with the rows in order. Their sort counts as the function's time."""
        if self.order is None:
            return self
        from headgate.functions.sorting import sort_batches  # noqa: PLC0415 - imports pyarrow

        rows = sort_batches(self, self.order.by, self.order.memory)
        return Batches(rows, self._empty)

    def _take(self) -> pa.RecordBatch:
        self._clock.enter(INPUT)
        try:
            batch = super()._take()
        except StopIteration:
            self.ended = True
            raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._clock.enter(FUNCTION)
        self._count(batch)
        return batch


def apply(name: str, function: BatchFunction | None, *sources: Source) -> Iterator[Any]:
    """Yield the batches that ``function`` returns for the sources; without a function those of the only one.

    The function returns an iterable of batches, of tables or of DataFrames of any library with Arrow's
    PyCapsule interface, or of pandas; or one of these in its place. What is none of them is yielded as it
    is, for :class:`SchemaCast` to refuse.

    Raises:
        UserFunctionFailed: the function raised.
        SchemaMismatchError: the function returned nothing that could have rows, or None among its batches.
        Exception: of a source. If the function caught it and went on, rows are missing.
    """
    if function is None:
        (source,) = sources
        yield from source.ordered()
        return
    inputs: list[Batches] = list(sources)
    order = sources[0].order
    try:
        if isinstance(function, PerKey) and order is not None:
            (rows,) = inputs
            output: Any = function.sorted_within(rows, order.by)  # one sort in place of two
        else:
            inputs = [source.ordered() for source in sources]
            output = function(*inputs)
    except BaseException as error:
        _raise_origin(sources)
        raise UserFunctionFailed(name, error) from error
    refuse_early_return(name, output, inputs)
    batches = returned(name, output)
    try:
        yield from batches
    except GeneratorExit:
        raise  # no further batch is asked for
    except BaseException as error:
        _raise_origin(sources)
        if isinstance(error, errors.SchemaMismatchError) and error.details.get("function") == name:
            raise  # of what the function returned, not by the function
        raise UserFunctionFailed(name, error) from error
    _raise_origin(sources)


def _raise_origin(sources: Iterable[Source]) -> None:
    """Raise the error of a source that failed. It is the first cause, also if a library hides it."""
    for source in sources:
        if source.error is not None:
            raise source.error from source.error.__cause__


def guarded(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls the user's and raises UserFunctionFailed for its exceptions."""

    def called(value: Any) -> Any:
        try:
            return function(value)
        except BaseException as error:
            raise UserFunctionFailed(name, error) from error

    return called
