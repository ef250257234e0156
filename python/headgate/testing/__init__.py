"""For authors of functions: ``map`` and ``reduce`` without Spark, over any cut of the rows.

Spark cuts rows into partitions and batches as it likes, delivers them in any order, and calls functions again
if it loses a worker. :func:`check` tries all of this and says on what the result depends::

    from headgate.testing import check

    def test_sessions():
        check(clicks, by="user", reduce=sessions, schema=pa.schema(...))

:func:`run` returns the result of one cut. Both take pyarrow's schemas, and use neither Spark nor Java.

:class:`Service` is an HTTP service for tests of what calls one, with faults, limits and a bill.
"""

from headgate.testing.check import check
from headgate.testing.run import Cut, Input, run
from headgate.testing.service import Service
from headgate.testing.serving import Request

__all__ = ["Cut", "Input", "Request", "Service", "check", "run"]
