"""Actions in threads of their own, and the producer jobs that they start."""

import time

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException

#: Limit in seconds for a step that takes one second on an idle machine.
LONG = 120.0


def producer_jobs(spark):
    """Return the ids of the active producer jobs."""
    tracker = spark.sparkContext.statusTracker()
    store = spark.sparkContext._jsc.sc().statusStore()
    described = {}
    for job in tracker.getActiveJobsIds():
        said = store.job(job).description()
        described[job] = said.get() if said.isDefined() else ""
    return [job for job, text in described.items() if text.startswith("headgate ")]


def eventually(condition, seconds=LONG):
    """Poll a condition until it is true; return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


class Action:
    """Runs an action in a new thread, with its own local properties of Spark."""

    def __init__(self, spark, prepare, action):
        self.error = None
        self.rows = None
        self._spark, self._context = spark, spark.sparkContext
        self._prepare, self._action = prepare, action
        self._thread = InheritableThread(target=self._act)
        self._thread.start()

    def _act(self):
        self._prepare(self._context)
        try:
            self.rows = self._action()
        except (Py4JJavaError, PySparkException) as error:
            self.error = str(error)

    def join(self):
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def producer_jobs(self, count=1):
        """Wait until the action has ``count`` producer jobs; return their ids."""

        def found():
            jobs = producer_jobs(self._spark)
            assert len(jobs) >= count or self._thread.is_alive(), (
                f"it ended: {self.error or self.rows}"
            )
            return len(jobs) >= count and jobs

        return eventually(found)
