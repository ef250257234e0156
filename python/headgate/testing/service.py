"""A service on this machine, for tests of pipelines that call one."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import amount, duration, flag, function, refuse, text, whole_number
from headgate._closing import Closing
from headgate._matches import close_matches
from headgate._unpicklable import culprit
from headgate.errors import ClosedError, OptionError, PeerLostError
from headgate.testing import serving

#: Most seconds in which the process of a service ends that is told to.
_END: Final = 5.0
_ANSWER: Final = "answer=lambda request: request.json() · a function of a module"
#: One row per call.
CALLS: Final = pa.schema(
    [
        ("call_id", pa.string()),
        ("key", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("seconds", pa.float64()),
        ("status", pa.int16()),
        ("outcome", pa.string()),
        ("paid", pa.bool_()),
    ]
)
#: One row per idempotency key.
LEDGER: Final = pa.schema(
    [
        ("call_id", pa.string()),
        ("calls", pa.int64()),
        ("answered", pa.int64()),
        ("paid", pa.int64()),
        ("first", pa.timestamp("us", "UTC")),
        ("last", pa.timestamp("us", "UTC")),
    ]
)


class Service(Closing):
    """An HTTP service at ``url`` on this machine, in a process of its own. A context manager, which closes it.

    It takes calls of any method and path. By default it sends back what it gets. Latencies and faults are drawn from the
    seed and the content of each call: its method, path, body, and how often the same came before. So they are the same in
    each run, in whatever order calls come and from however many clients. Limits depend on when calls come.

    A call that the service has begun is paid for, also if the client is gone when it ends, or if its connection is reset
    then. Calls that it refuses with 429, errors and silence are not paid for.

    Args:
        answer: gets a :class:`Request`, and returns a value for JSON, a text, bytes, or a status with one of them; a status
            of 400 or more is an error. It runs in the service's process, one call at a time.
        seed: of all that is drawn.
        latency: time of a call, in seconds or as ``"200ms"``.
        spread: most that the time of a call is above or below it; all times between are equally likely.
        slow: share of calls that are slow.
        slow_factor: how many times slower they are.
        rate: calls/s that the service takes of all clients together; further ones get 429 with ``Retry-After`` in whole seconds,
            and ``Retry-After-Ms``.
        key_rate: the same for the calls of each key.
        burst: calls that may come at once, where a rate limits them; by default those of a tenth of a second.
        quota: calls that each key may make; further ones get 429 without ``Retry-After``. Calls that were refused do not count.
        refusals: share of calls that get 429 in any case.
        retry_after: how long these ask to wait.
        errors: share of calls that get 500, 502 or 503.
        resets: share of calls at whose end the connection is reset.
        silent: share of calls that get no answer.
        idempotent: True if a call under the ``Idempotency-Key`` of one that was paid for is answered at once, and not paid for. Else
            each is worked on and paid for anew, so that the ledger shows calls that came twice.
        key: the header with the key of a client.

    Raises:
        OptionError: an argument is outside its limits; ``answer`` cannot be pickled; shares have a sum above 1.

    Attributes:
        url: such as ``"http://127.0.0.1:43211/"``.

    Example:
        >>> from urllib.request import Request, urlopen
        >>> from headgate.testing import Service
        >>> with Service(lambda request: request.body.upper()) as service:
        ...     for name in ("a", "b", "a"):
        ...         call = Request(service.url, b"tea", {"Idempotency-Key": name})
        ...         answer = urlopen(call).read()
        >>> answer
        b'TEA'
        >>> service.ledger().select(["call_id", "calls", "paid"]).to_pylist()
        [{'call_id': 'a', 'calls': 2, 'paid': 2}, {'call_id': 'b', 'calls': 1, 'paid': 1}]
    """

    def __init__(
        self,
        answer: Callable[[serving.Request], Any] | None = None,
        *,
        seed: int = 0,
        latency: float | str = 0,
        spread: float | str = 0,
        slow: float = 0,
        slow_factor: float = 20,
        rate: float | None = None,
        key_rate: float | None = None,
        burst: int | None = None,
        quota: int | None = None,
        refusals: float = 0,
        retry_after: float | str = 1,
        errors: float = 0,
        resets: float = 0,
        silent: float = 0,
        idempotent: bool = False,
        key: str = "Authorization",
    ) -> None:
        options = {
            "seed": seed,
            "latency": latency,
            "spread": spread,
            "slow": slow,
            "slow_factor": slow_factor,
            "rate": rate,
            "key_rate": key_rate,
            "burst": burst,
            "quota": quota,
            "refusals": refusals,
            "retry_after": retry_after,
            "errors": errors,
            "resets": resets,
            "silent": silent,
            "idempotent": idempotent,
            "key": key,
        }
        self._options = _checked(options)
        dumped = _dumped(answer)
        self._lock = threading.Lock()
        #: The calls, once the service is closed.
        self._last: pa.Table | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            # Without the folder of the file in its path, whose modules would hide others.
            command = [sys.executable, "-P", str(Path(serving.__file__)), str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = Connection(ours.detach())
        try:
            self._control.send(sys.path)
            self._control.send((self._options, dumped))
            self.url = f"http://{serving.HOST}:{self._reply()}/"
        except BaseException:
            self._end()
            raise

    def calls(self) -> pa.Table:
        """Return all calls in the order in which they came, also once the service is closed.

        Returns:
            The columns ``call_id``, the header ``Idempotency-Key``; ``key``, that of the client; ``at``, when it came; ``seconds``
            until it ended, null before; ``status``, null if no answer was sent; ``paid``; and ``outcome``: ``"answered"``,
            ``"abandoned"`` by the client, ``"replayed"``, ``"refused"`` by chance, ``"limited"`` by the rate, ``"over quota"``,
            ``"failed"``, ``"reset"``, ``"silent"``, ``"cut"`` by an outage or by :meth:`close`, or ``"running"``.

        Raises:
            PeerLostError: the service's process was killed.
        """
        if self._last is None:
            return _table(self._order("calls"))
        return self._last

    def ledger(self) -> pa.Table:
        """Return the bill: a row for each ``call_id``, in the order of their first calls.

        Returns:
            The columns ``call_id``, the header ``Idempotency-Key``, null for calls without one; the numbers of all its ``calls``, of
            those that were ``answered`` without an error, and of those that were ``paid`` for; and the times of the ``first`` and
            ``last`` one.

        Raises:
            PeerLostError: the service's process was killed.
        """
        calls = self.calls()
        answered = pc.is_in(calls["outcome"], pa.array(["answered", "replayed"]))
        numbers = pa.table(
            {
                "call_id": calls["call_id"],
                "answered": answered.cast(pa.int64()),
                "paid": calls["paid"].cast(pa.int64()),
                "at": calls["at"],
            }
        )
        counts = numbers.group_by("call_id", use_threads=False).aggregate(
            [([], "count_all"), ("answered", "sum"), ("paid", "sum"), ("at", "min"), ("at", "max")]
        )
        names = ("call_id", "count_all", "answered_sum", "paid_sum", "at_min", "at_max")
        return pa.Table.from_arrays([counts[name] for name in names], schema=LEDGER)

    def change(self, **options: Any) -> None:
        """Change arguments of the service; calls that it has begun go on as before.

        Args:
            options: arguments of :class:`Service` other than ``answer``. Buckets of rates begin anew; what was paid for and
                what counts for a quota stays.

        Raises:
            OptionError: there is no such argument, or it is outside its limits.
        """
        checked = _checked({**self._options, **options})
        self._order("change", checked)
        self._options = checked

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Reset all connections, and refuse new ones until the end of the block. Calls under way are cut, and not paid for.

        Raises:
            OptionError: another program has taken the port meanwhile.
        """
        self._order("down")
        try:
            yield
        finally:
            self._order("up")

    def close(self) -> None:
        """End the service. Calls under way are cut; :meth:`calls` and :meth:`ledger` can still be read."""
        if self._control.closed:
            return
        try:
            with suppress(PeerLostError):
                self._last = _table(self._order("close"))
        finally:
            self._end()

    def _end(self) -> None:
        self._control.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _order(self, name: str, value: Any = None) -> Any:
        """Send an order to the process; return its answer."""
        with self._lock:
            if self._control.closed:
                if self._last is None:
                    raise self._lost()
                raise ClosedError(f"{name}() of a service that is closed")
            try:
                self._control.send((name, value))
            except OSError as error:
                raise self._lost() from error
            return self._reply()

    def _reply(self) -> Any:
        try:
            is_done, answer = self._control.recv()
        except (OSError, EOFError) as error:
            raise self._lost() from error
        if not is_done:
            raise OptionError(
                f"a service cannot serve: {answer}",
                remedy=f"{_ANSWER} · a machine with free ports at {serving.HOST}",
            )
        return answer

    def _lost(self) -> PeerLostError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        return PeerLostError(
            "the process of a testing service has ended",
            have=f"exit status {self._process.returncode}",
            remedy="outage() for a service that is away for a while",
        )


def _table(columns: Mapping[str, Any]) -> pa.Table:
    seconds = _numbers(pa.float64(), columns["seconds"])
    status = _numbers(pa.int16(), columns["statuses"])
    arrays = [
        pa.array(columns["call_ids"], pa.string()),
        pa.array(columns["keys"], pa.string()),
        _numbers(pa.timestamp("us", "UTC"), columns["at"]),
        pc.if_else(pc.is_nan(seconds), pa.scalar(None, pa.float64()), seconds),
        pc.if_else(pc.equal(status, 0), pa.scalar(None, pa.int16()), status),
        pa.array(serving.OUTCOMES).take(_numbers(pa.int8(), columns["outcomes"])),
        _numbers(pa.int8(), columns["paid"]).cast(pa.bool_()),
    ]
    return pa.Table.from_arrays(arrays, schema=CALLS)


def _numbers(of: pa.DataType, values: Any) -> pa.Array:
    """Return an array over memory with numbers."""
    buffer = pa.py_buffer(values)
    return pa.Array.from_buffers(of, buffer.size // (of.bit_width // 8), [None, buffer])


def _share(name: str, value: Any) -> float:
    if amount(name, value) > 1:
        raise refuse(name, value, "is above 1", "a share of the calls", f"{name}=0.05")
    return float(value)


def _rate(name: str, value: Any) -> float | None:
    if value is not None and amount(name, value) < 0.001:
        raise refuse(name, value, "is too low", "calls/s, at least 0.001, or None", f"{name}=500")
    return None if value is None else float(value)


def _count(minimum: int) -> Callable[[str, Any], int | None]:
    return lambda name, value: None if value is None else whole_number(name, value, minimum)


def _seconds(name: str, value: Any) -> float:
    return duration(name, value, 0)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "seed": lambda name, value: whole_number(name, value, 0),
    "latency": _seconds,
    "spread": _seconds,
    "slow": _share,
    "slow_factor": amount,
    "rate": _rate,
    "key_rate": _rate,
    "burst": _count(1),
    "quota": _count(0),
    "refusals": _share,
    "retry_after": _seconds,
    "errors": _share,
    "resets": _share,
    "silent": _share,
    "idempotent": flag,
    "key": text,
}
_SHARES: Final = ("refusals", "errors", "resets", "silent")


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a service as its process takes them.

    Raises:
        OptionError: one is unknown, or outside its limits.
    """
    for name in options:
        if name not in _CHECKS:
            near = " · ".join(f"{match}=" for match in close_matches(name, _CHECKS) or _CHECKS)
            raise OptionError(f"a service has no argument {name!r}", asked=f"{name}=", remedy=near)
    checked = {name: _CHECKS[name](name, value) for name, value in options.items()}
    total = sum(checked[name] for name in _SHARES)
    if total > 1 + 1e-9:
        raise OptionError(
            f"the shares of calls that go wrong have a sum of {total:g}",
            have=", ".join(f"{name}={checked[name]:g}" for name in _SHARES),
            remedy="shares with a sum of at most 1",
        )
    return checked


def _dumped(answer: Any) -> bytes | None:
    """Return a function as bytes, by cloudpickle if there is one: it takes lambdas and functions of ``__main__``.

    Raises:
        OptionError: it is none, or cannot be pickled.
    """
    if answer is None:
        return None
    function("answer", answer, 1, _ANSWER)
    dumps: Callable[[Any], bytes] = pickle.dumps
    with suppress(ImportError):
        from pyspark.cloudpickle import dumps  # noqa: PLC0415 - optional
    try:
        return dumps(answer)
    except Exception as error:
        raise OptionError(
            f"answer= cannot be pickled: {type(error).__name__}: {error}",
            have=culprit([("answer", answer)], dumps),
            remedy=_ANSWER,
        ) from error
