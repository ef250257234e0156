"""Calls the user's functions and distinguishes their exceptions from all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate.spark.tasks.timing import FUNCTION, INPUT, Clock
from headgate.spark.wire.cause import message_of, one_line, sendable, traceback_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    #: The type of map and reduce.
    BatchFunction = Callable[..., Iterator["pa.RecordBatch"]]

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
        text = _own_traceback(error)
        self.text = sendable(text, MAX_TEXT)
        self.error = error if self.text == text else user_error(self, "")


class Source:
    """Hands batches to a user function and keeps an error of their origin.

    Args:
        batches: their origin.
        count: called with each batch before the function gets it.
        clock: measures how long the function waits for batches.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        count: Callable[[pa.RecordBatch], object],
        clock: Clock | None = None,
    ) -> None:
        self._batches = iter(batches)
        self._count = count
        self._clock = Clock() if clock is None else clock
        self.error: BaseException | None = None
        self.ended = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return itself."""
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        self._clock.enter(INPUT)
        try:
            batch = next(self._batches)
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


def apply(name: str, function: BatchFunction | None, *sources: Source) -> Iterator[pa.RecordBatch]:
    """Yield what ``function`` returns for the sources; without a function the only source itself.

    Raises:
        UserFunctionFailed: the function raised, or returned something that gives no batches.
    """
    if function is None:
        (source,) = sources
        yield from source
        return
    try:
        yield from function(*sources)
    except GeneratorExit:
        raise  # no further batch is asked for
    except BaseException as error:
        for source in sources:
            if source.error is not None and _comes_from(error, source.error):
                raise source.error from None
        raise UserFunctionFailed(name, error) from error


def own(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls the user's and raises UserFunctionFailed for its exceptions."""

    def called(value: Any) -> Any:
        try:
            return function(value)
        except BaseException as error:
            raise UserFunctionFailed(name, error) from error

    return called


def user_error(failure: UserFunctionFailed, where: str) -> errors.HeadgateError:
    """Return the error that stands for a failed user function in other processes."""
    error = errors.UserFunctionError(failure.summary, have=where)
    return error.caused_by(failure.text)


def _comes_from(error: BaseException, origin: BaseException) -> bool:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if link is origin:
            return True
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return False


def _own_traceback(error: BaseException) -> str:
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        if frames.tb_frame.f_globals.get("__name__") != __name__:
            break
        frames = frames.tb_next
    return traceback_of(error, frames)
