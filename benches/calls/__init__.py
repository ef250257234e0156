"""Calls that wait: ``map_async`` against what the service allows, through losses, without waiting, and against others.

The service is a process of its own, ``headgate.testing.Service``: 200 ms +- 50 a call, 500 calls/s, 5 % answered with
429, 1 % with an error, by a seed. 20,000 rows are called one by one in two worker processes, 64 calls at a time in
each, with ``rate="500/s"``.

- ``calls_limit`` is the time of all calls at 500/s, those that the service answers with 429 or an error by chance
  included, over the time of the whole job.
- ``calls_rate`` is 1 less the furthest from what was asked that the calls of a second are, by the ledger of a service
  without limits: 500/s across four tasks, for each second that begins a tenth of one after another.
- ``calls_paid`` is 1.005 over the calls paid for per row while 10 workers and 2 drivers are killed at random moments;
  the rows have ``memo=`` and ``call_id=``, by which the service knows a call again. ``calls_paid_exchanges`` has an
  exchange by key before the calls and one behind them. "begun" is what a service without ``call_id`` would have been
  paid for.
- ``calls_slow`` is the ideal time over the time with a tenth of the calls 20 times slower, behind
  ``rebalance(by="load")`` to four tasks with 32 calls at a time each; ideal is the time without slow ones, by as much
  as all calls together take longer.
- ``calls_memory`` is 1.1 times the peak of a process whose job calls 10,000 rows over the peak for 1,000,000 rows; a
  call waits 1 ms, a thousand at a time.
- ``calls_overhead_batches`` and ``calls_overhead_rows`` are the rows/s of calls that return at once, in batches of 64
  and row by row, over those of ``map`` with a function that does the same, all from a source with batches of 64 rows.
- ``calls_NAME`` is the time of another program over ours, in turns: ``mapInArrow`` with an event loop by hand, Ray
  Data, Daft, PyFlink. All but PyFlink write their rows, and have two processes with 64 calls at a time, Daft one with
  128. Their sessions run before the clock starts.
- ``calls_NAME_again`` is the number of calls that are paid for again after the kill of a process that calls, at half
  of the rows, over ours; ``calls_NAME_after`` the time that the kill costs over ours. A program whose only process is
  killed starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

#: Part -> its module. The functions of other programs are in this package too, where these modules cannot be imported.
PARTS = {
    "limit": "limits",
    "rate": "limits",
    "paid": "losses",
    "slow": "limits",
    "memory": "local",
    "overhead": "local",
    "peers": "peers",
}


def main(arguments: Sequence[str]) -> None:
    from benches import harness

    parser = harness.arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    options = parser.parse_args(arguments)
    for name in options.parts:
        part = getattr(import_module(f"benches.calls.{PARTS[name]}"), name)
        part(options.turns, quick=options.quick)
