"""An exception of a user's function reaches every process: type and traceback, once, bounded."""

import json
import sys
import threading
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import compares_rows, in_executors
from tests.kit.outcomes import rounds

from headgate.control.cause import Cause
from headgate.errors import (
    CoordinatorError,
    InternalError,
    SchemaMismatchError,
    UserFunctionError,
)
from headgate.spark import exchange
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply

#: Length of a text, in characters, that is too long for a log.
HUGE = 10_000_000


class LedgerError(ValueError):
    """A class that the user defines."""


class UnpicklableError(Exception):
    """Takes two arguments and has a lock, so it can be neither pickled nor unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.lock = threading.Lock()


class MuteError(Exception):
    """Raises when it is printed."""

    def __str__(self):
        raise RuntimeError("nothing to say")

    __repr__ = __str__


class BareError(BaseException):
    """Not an Exception, so most handlers let it pass."""


def chained():
    try:
        raise KeyError("account 7")
    except KeyError as error:
        raise LedgerError("does not balance") from error


def noted():
    error = LedgerError("does not balance")
    error.add_note("row 17 of the batch")
    raise error


def grouped():
    raise ExceptionGroup("two at once", [ValueError("the one"), TypeError("the other")])


def unpicklable():
    raise UnpicklableError("one", "two")


def huge():
    raise LedgerError("x" * HUGE)


def huge_in_lines():
    raise LedgerError("does not balance\n" * (HUGE // 16))


def surrogates():
    raise LedgerError("file \udc80\udcff of the ledger")


def mute():
    raise MuteError


def silent():
    raise LedgerError


def exiting():
    sys.exit(3)


def interrupting():
    raise KeyboardInterrupt("enough")


def bare():
    raise BareError("not an Exception")


def stopping():
    next(iter(()))


def endless():
    endless()


@dataclass(frozen=True)
class Mishap:
    """A function that raises, and the name and texts of its exception in another process."""

    act: object
    name: str
    says: tuple = ()

    def __str__(self):
        return self.act.__name__


MISHAPS = [
    Mishap(chained, "LedgerError: does not balance", ("KeyError: 'account 7'", "direct cause")),
    Mishap(noted, "LedgerError: does not balance", ("row 17 of the batch",)),
    Mishap(grouped, "ExceptionGroup: two at once", ("ValueError: the one", "TypeError: the other")),
    Mishap(unpicklable, "UnpicklableError: one and two"),
    Mishap(huge, "LedgerError: xxxx", ("characters left out",)),
    Mishap(huge_in_lines, "LedgerError: does not balance", ("characters left out",)),
    Mishap(surrogates, "LedgerError: file \\udc80\\udcff of the ledger"),
    Mishap(mute, "MuteError: <RuntimeError in its __str__>"),
    Mishap(silent, "LedgerError"),
    Mishap(exiting, "SystemExit: 3"),
    Mishap(interrupting, "KeyboardInterrupt: enough"),
    Mishap(bare, "BareError: not an Exception"),
    Mishap(stopping, "RuntimeError: generator raised StopIteration", ("StopIteration",)),
    Mishap(endless, "RecursionError: maximum recursion depth exceeded", ("more times",)),
]


# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Limit of the text of a failed action, in characters: the task's traceback and the driver's stack.
SHOWN = 100_000


def failing(mishap):
    """Return a function of batches that raises in its second frame."""

    def ledger(batches):
        for batch in batches:
            if batch is None or batch.num_rows:
                mishap.act()
            yield batch

    return ledger


def failure_of(mishap):
    """Run a function that fails, as a task does; return the UserFunctionFailed that it raises."""
    one = pa.record_batch({"n": [1]})
    source = Source([one], one.schema, lambda _: None)
    with pytest.raises(UserFunctionFailed) as caught:
        list(apply("map", failing(mishap), source))
    return caught.value


def again(cause):
    """Return a cause after a message of a streaming job has carried it."""
    return Cause.from_fields(json.loads(json.dumps(cause.fields())))


@pytest.mark.parametrize("mishap", MISHAPS, ids=str)
def test_spark_can_print_the_error_that_it_gets(mishap):
    failure = failure_of(mishap)
    assert len(failure.text.encode()) <= 70_000
    plain = {"huge", "huge_in_lines", "surrogates"}
    assert (type(failure.error).__name__ == "UserFunctionError") == (str(mishap) in plain)


def test_a_headgate_error_keeps_the_text_of_its_cause():
    def wait():
        try:
            raise ConnectionResetError("by peer")
        except OSError as error:
            raise CoordinatorError("it cannot be reached") from error

    with pytest.raises(CoordinatorError) as caught:
        wait()
    cause = again(Cause.of(caught.value))
    assert (cause.code, cause.summary) == ("HG-3008", "it cannot be reached")
    assert "ConnectionResetError: by peer" in cause.text


def test_an_error_of_another_library_keeps_its_type_and_traceback():
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018 - it raises
    error = again(Cause.of(caught.value, where="there")).error()
    assert isinstance(error, InternalError)
    assert error.summary == "ZeroDivisionError: division by zero"
    assert error.cause_text.count("1 / 0") == 1


def test_an_error_does_not_grow_when_it_is_sent_again():
    failure = failure_of(MISHAPS[0])
    cause = Cause.of(UserFunctionError(failure.summary).caused_by(failure.text))
    texts = []
    for _ in range(20):
        cause = again(Cause.of(cause.error()))
        texts.append("".join([str(cause.error()), *cause.error().__notes__]))
    assert len(set(texts)) == 1


def test_values_in_a_headgate_error_are_bounded():
    error = SchemaMismatchError(
        "y" * 5_000_000, asked="a" * 10**6, have="h" * 10**6, remedy="r" * 10**6
    )
    assert len(str(again(Cause.of(error)).error())) <= 2_500


@pytest.mark.soak
@in_executors
@pytest.mark.parametrize(
    ("role", "mishap"),
    [("map", mishap) for mishap in MISHAPS[:: rounds(5, 1)]]
    + [("reduce", mishap) for mishap in MISHAPS[:: rounds(14, 1)]],
    ids=str,
)
def test_on_spark_the_action_raises_the_functions_exception(numbers, role, mishap):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        exchange(numbers, by="k", schema=numbers.schema, **{role: failing(mishap)}).collect()
    text = str(caught.value)
    assert "in ledger" in text
    assert f"in {mishap.act.__name__}" in text
    assert mishap.name.partition(":")[0] in text
    assert len(text) <= SHOWN


@in_executors
@compares_rows
def test_on_spark_the_action_raises_the_selectors_exception(numbers):
    def ledger(batch):
        return [{"a": 0}[str(n)] for n in range(batch.num_rows)]

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        exchange(numbers.coalesce(1), by=ledger).collect()
    text = str(caught.value)
    assert "KeyError: '0'" in text
    assert "in ledger" in text
