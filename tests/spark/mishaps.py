"""Exceptions of every kind that a user's function can raise, and the expected text of each."""

import sys
import threading
from dataclasses import dataclass

from pyspark import cloudpickle

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

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
