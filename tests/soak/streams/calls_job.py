"""Runs a job with calls of a service, with faults that a seed decides, and checks its output and the bill."""

import signal
import time
from collections import Counter

import numpy as np
from tests.kit.stream_jobs import rows_of
from tests.soak.streams import oracle, rows
from tests.soak.streams.bill import COLUMNS, Bill
from tests.soak.streams.job import Job
from tests.soak.streams.kinds import ALIGNMENTS, KINDS_OF_CALLS
from tests.soak.streams.process import send

from headgate.testing import Service

#: Of a service that is quick, so that many calls fall between two faults.
SERVICE = {
    "latency": 0.005,
    "spread": 0.004,
    "refusals": 0.05,
    "retry_after": 0.01,
    "errors": 0.01,
}


class CallsJob(Job):
    """A job whose rows are in the output once, and of whose calls few are paid for twice.

    Of three jobs two remember results by ``memo=``: a task that is lost costs what it had in the air, and nothing else.
    In the third one calls behind the last checkpoint are made again.

    Args:
        seed: decides all but the timing.
        folder: as of others.
        faults: number of faults.
        has_disk: as of others.
    """

    module = "tests.soak.streams.calls"
    functions = ("map", "call", "process", "visible")
    kinds = KINDS_OF_CALLS
    #: Numbers of worker processes, of which each driver has one.
    workers = (0, 2, 2, 3)

    def __init__(self, seed, folder, faults, has_disk):
        super().__init__(seed, folder, faults, has_disk)
        self._kinds, self._alignments = self.kinds, ALIGNMENTS
        self._remembers = seed % 3 != 0
        self._has_names = self.dice.random() < 0.5
        self._in_flight = self.dice.choice([1, 4, 8, 16])
        options = {"in_flight": self._in_flight, "memo": "id" if self._remembers else None}
        options["call_id"] = "id" if self._has_names else None
        exchanges = self.dice.random() < 0.6
        orders = [True, False, "by_key"] if exchanges else [True, False]
        options["ordered"] = self.dice.choice(orders)
        if self.dice.random() < 0.3:
            options["rate"] = f"{self.dice.choice([300, 1000])}/s"
        if self.dice.random() < 0.3:
            options["breaker"] = 0.5
        self._shape = {"exchanges": exchanges, "options": options}
        names = ["exchanges" if exchanges else "calls alone"]
        names += [name for name in ("memo", "call_id", "rate", "breaker") if options.get(name)]
        self.outcome.name = ", ".join(names)
        self._rows = self.dice.randrange(100, 250) * faults
        self._bill = Bill(folder / "bill")
        self._service = None

    def run(self):
        """Run the job beside its service."""
        try:
            return super().run()
        finally:
            self._service.close()

    def _begin(self):
        if self._service is None:
            self._serve()
        super()._begin()

    def _serve(self):
        self._service = Service(self._bill, seed=self.outcome.seed, **SERVICE)
        fresh = self._folder / "service.new"
        fresh.write_text(self._service.url)
        fresh.rename(self._folder / "service")

    def _spec(self):
        spec = {**super()._spec(), "shape": self._shape}
        # So long that what is called again behind a checkpoint is more than what is in the air.
        spec["options"]["interval"] = self.dice.choice([0.05, 0.2, 0.4])
        spec["options"]["workers"] = self.dice.choice(self.workers)
        return spec

    # Faults of the service.

    def _outage_of_the_service(self):
        with self._service.outage():
            time.sleep(self.dice.uniform(0.05, 0.4))
        return True

    def _kill_the_service(self):
        self._service._process.kill()
        self._service.close()
        time.sleep(self.dice.uniform(0, 0.2))
        self._serve()
        return True

    def _stop_the_service(self):
        pid = self._service._process.pid
        send(pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.05, 0.4))
        return send(pid, signal.SIGCONT)

    # The end.

    def _check_savepoint(self, folder):
        """There is no model of what is under way; a job that begins with it shows if it is whole."""

    def _check_rows(self):
        expected = rows.columns(np.arange(self._rows), self.outcome.seed)
        answers = rows_of(self._folder / "out" / "answers").to_pydict()
        right = {name: expected[name].tolist() for name in COLUMNS}
        oracle.same("answers", _counts(answers), _counts(right))
        self._check_bill()

    def _check_bill(self):
        """Compare what was paid for with what was in the air when tasks were lost."""
        calls = self._bill.calls()
        by_row = Counter()
        for (row, _), times in calls.items():
            by_row[row] += times
        oracle.same("rows on the bill", Counter(by_row.keys()), Counter(range(self._rows)))
        owners = {}
        for row, name in calls:
            if owners.setdefault(name, row) != row or (self._has_names and name != str(row)):
                raise oracle.Wrong(f"the call {name} is about the rows {owners[name]} and {row}")
        again = sum(by_row.values()) - self._rows
        opened = len((self._folder / "opened").read_text().splitlines())
        self.outcome.counts["tasks that called"] += opened
        if not self._remembers:
            self.outcome.counts["paid for again without memo"] += again
            return
        allowed = opened * self._in_flight
        self.outcome.counts["paid for again"] += again
        self.outcome.counts["which tasks had in the air, at most"] += allowed
        if again > allowed:
            raise oracle.Wrong(
                f"{again} calls are paid for again: more than the {self._in_flight} in the air of "
                f"each of {opened} tasks"
            )


def _counts(columns):
    """Return how often each row is there."""
    return Counter(zip(*(columns[name] for name in COLUMNS), strict=True))
