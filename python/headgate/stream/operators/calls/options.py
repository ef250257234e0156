"""The options of calls: how rows become calls, and how often and how long each is tried."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from headgate.stream.graph.call_functions import Retry
from headgate.stream.operators.calls.answers import asked_wait
from headgate.stream.operators.calls.breaker import ANSWERS

if TYPE_CHECKING:
    from headgate.stream.graph.call_rates import CallRate

Order: TypeAlias = Literal[True, False, "by_key"]
OnError: TypeAlias = Literal["fail", "side_output", "null"]
#: Most seconds between two attempts, unless the service asks for more.
_LONGEST_BACKOFF: Final = 60.0
#: So many rows may wait for the rate of a slow value while others are called.
_WAITING: Final = 4096


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How often and how long a call is tried.

    Attributes:
        timeout: most seconds of an attempt; None for any time.
        retries: most attempts after the first.
        backoff: seconds before the second attempt; twice as many before each further one.
        retry_on: classes of errors after which it is called again, beside Retry.
        breaker: calls pause if more than this share of attempts fails; None if they never do.
        rate: of attempts in all tasks; None for any.
    """

    timeout: float | None
    retries: int
    backoff: float
    retry_on: tuple[type[Exception], ...]
    breaker: float | None = None
    rate: CallRate | None = None

    @property
    def num_waiting(self) -> int:
        """Most calls of a task that wait for the tokens of their values, beside those under way."""
        return 0 if self.rate is None or self.rate.column is None else _WAITING

    def is_retried(self, error: BaseException, failed: int) -> bool:
        """Return True if a call goes on after an error.

        Args:
            error: of the attempt.
            failed: number of attempts so far.
        """
        # Rows of a wrong schema are the function's mistake, which it would make again.
        is_for_retry = isinstance(error, (Retry, *self.retry_on)) and not isinstance(error, ANSWERS)
        return failed <= self.retries and is_for_retry

    def delay(self, error: BaseException, failed: int) -> float:
        """Return the seconds before the next attempt: what the service asks for, or a random part of the back-off."""
        seconds = asked_wait(error)
        if seconds is not None:
            return seconds
        longest = min(_LONGEST_BACKOFF, self.backoff * 2.0 ** min(failed - 1, 30))
        return longest * random.uniform(0.5, 1)  # noqa: S311 - so that calls do not come all at once


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How rows become calls.

    Attributes:
        policy: of each call.
        in_flight: most calls at a time.
        in_flight_bytes: of rows that are called, and results that are not sent: with so many no call begins.
        order: of the results.
        on_error: what becomes of a call that has failed.
        rows: most rows of a batch; None for a call per row.
        bytes: of a batch that waits for no more rows; None for any.
        wait: ms for which a batch waits for rows.
        takes_context: True if the function takes the call's context.
        call_id: column that names the calls, which have a row each; None for names that are made.
    """

    policy: CallPolicy
    in_flight: int
    in_flight_bytes: int
    order: Order
    on_error: OnError
    rows: int | None
    bytes: int | None
    wait: int
    takes_context: bool
    call_id: str | None
