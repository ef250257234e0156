"""Ctrl-C in the driver."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import SparkContext

_LOG: Final = logging.getLogger("headgate.spark")
#: Longest wait, in seconds, for Spark to take the request. A later one could hit the user's next job.
_PATIENCE: Final = 2.0


def cancel_on_ctrl_c(context: SparkContext) -> None:
    """Cancel all jobs on Ctrl-C, which PySpark's own handler cannot do.

    The main thread waits in py4j for its action. PySpark's handler interrupts it there, so its call of
    ``cancelAllJobs`` over the same connection fails and the jobs go on. Ours has another thread call
    it, then calls PySpark's. A handler of the user's own stays as it is.

    Args:
        context: the application. PySpark sets its handler again when it starts another one.
    """
    previous = signal.getsignal(signal.SIGINT)
    theirs = getattr(previous, "__module__", None) or ""
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return
    if theirs.startswith("pyspark."):

        def cancel() -> None:
            try:
                context.cancelAllJobs()
            except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                _LOG.debug("Ctrl-C could not cancel the jobs: %s", error)

        def handle(number: int, frame: FrameType | None) -> None:
            thread = threading.Thread(target=cancel, name="headgate-cancel", daemon=True)
            thread.start()
            thread.join(_PATIENCE)
            previous(number, frame)

        signal.signal(signal.SIGINT, handle)
