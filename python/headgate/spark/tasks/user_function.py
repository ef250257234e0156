"""Calls the user's map or reduce function, and tells its exceptions from everybody else's."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from headgate import errors
from headgate.spark.tasks.timing import FUNCTION, INPUT, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    #: What a user gives as map or reduce.
    BatchFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class UserFunctionFailed(Exception):
    """Carries the user's own exception, which is ``__cause__``, to the task body."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name = name
        self.error = error

    @property
    def summary(self) -> str:
        """One line: which function raised what."""
        said = str(self.error).partition("\n")[0]
        return f"{self.name} raised {type(self.error).__name__}" + (f": {said}" if said else "")

    @property
    def text(self) -> str:
        """The user's traceback, from the user's first frame on."""
        return _own_traceback(self.error)


class Source:
    """Hands batches to a user function and remembers an error of their origin.

    Args:
        batches: where they come from.
        count: called with each batch before it is handed over.
        clock: told when the function waits for a batch, and when it has one.
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


def apply(name: str, function: BatchFunction | None, source: Source) -> Iterator[pa.RecordBatch]:
    """Yield what ``function`` makes of the source; the source itself where there is none.

    Raises:
        UserFunctionFailed: the function raised, or returned something that gives no batches.
    """
    if function is None:
        yield from source
        return
    try:
        yield from function(source)
    except Exception as error:
        if source.error is not None and _comes_from(error, source.error):
            raise source.error from None
        raise UserFunctionFailed(name, error) from error


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
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip("\n")
