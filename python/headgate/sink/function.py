"""A sink that calls a function with each batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate._kinds import NOT_AWAITED, is_coroutine_function, kind_of
from headgate.errors import OptionError, StreamError, UserFunctionError
from headgate.sink.api import Delivery, Sink, SinkWriter, WriterContext

if TYPE_CHECKING:
    import pyarrow as pa

_REMEDY: Final = "FunctionSink(lambda batch: ...) · stream.sink_async(f), which awaits"


@dataclass(frozen=True, slots=True)
class FunctionSink(Sink):
    """Calls a function with each batch, in the task and its thread: at least once after a restart.

    An exception of the function fails the task. What it returns does not matter, unless it is a coroutine.

    Args:
        function: gets a batch of at least one row. What it does must be durable when it returns. In worker processes and
            on Spark it works with copies of what it refers to, such as a list.

    Raises:
        OptionError: the function cannot be called, or is a coroutine function.
    """

    function: Callable[[pa.RecordBatch], object]

    def __post_init__(self) -> None:
        """Check the function."""
        if not callable(self.function):
            raise OptionError(
                f"function is {kind_of(self.function)}, which cannot be called",
                remedy="FunctionSink(lambda batch: ...)",
            )
        if is_coroutine_function(self.function):
            raise OptionError(
                f"FunctionSink() cannot call its function: {NOT_AWAITED}",
                asked=f"FunctionSink({getattr(self.function, '__name__', '...')})",
                remedy=_REMEDY,
            )

    def __reduce__(self) -> tuple[type[FunctionSink], tuple[Callable[[pa.RecordBatch], object]]]:
        """Refuse to go to another process with a method of a collection, of which that process has a copy.

        Raises:
            StreamError: the function is one.
        """
        collection = getattr(self.function, "__self__", None)
        if isinstance(collection, (list, dict, set, bytearray, deque)):
            kind = type(collection).__name__
            raise StreamError(
                f"FunctionSink({kind}.{self.function.__name__}) would fill a copy of the {kind} in each worker process, "
                "and this process would see no row",
                remedy="start() without workers= and spark= · FileSink(folder)",
            )
        return (type(self), (self.function,))

    @property
    def delivery(self) -> Delivery:
        """``"at_least_once"``."""
        return "at_least_once"

    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> SinkWriter:
        """Return a writer that calls the function."""
        del schema
        return FunctionWriter(self.function, context.job)


class FunctionWriter(SinkWriter):
    """Calls a function with each batch.

    Args:
        function: gets the batches.
        job: name of the job at this sink, for errors.
    """

    def __init__(self, function: Callable[[pa.RecordBatch], object], job: str) -> None:
        self._function = function
        self._job = job

    def write(self, batch: pa.RecordBatch) -> None:
        """Call the function, unless the batch has no rows.

        Raises:
            UserFunctionError: the function failed, or returned a coroutine.
        """
        if not batch.num_rows:
            return
        try:
            result = self._function(batch)
        except Exception as error:
            raise UserFunctionError(
                f"the function of sink {self._job} failed: {type(error).__name__}: {error}"
            ) from error
        if isinstance(result, Coroutine):
            result.close()  # nobody will await it, so the rows were not written
            raise UserFunctionError(
                f"the function of sink {self._job} returned a coroutine, which nothing awaits",
                remedy=_REMEDY,
            )
