"""Runs a query of Nexmark with faults that a seed decides, and compares its answer with DuckDB's."""

from benches.nexmark import oracle
from benches.nexmark.queries import QUERIES
from tests.kit import nexmark
from tests.soak.streams.job import Job
from tests.soak.streams.kinds import ALIGNMENTS, KINDS

from headgate._sealed import unseal
from headgate.stream import read_savepoint


class NexmarkJob(Job):
    """A query, each row of which counts once. The seed decides which one it is: 24 in a row are all of them.

    Args:
        seed: decides all but the timing.
        folder: as of others.
        faults: number of faults.
        has_disk: as of others.
    """

    module = "tests.soak.streams.nexmark"
    functions = ("map", "process", "visible")

    def __init__(self, seed, folder, faults, has_disk):
        super().__init__(seed, folder, faults, has_disk)
        names = list(QUERIES)
        self.outcome.name = names[seed % len(names)]
        self._kinds, self._alignments = KINDS, ALIGNMENTS
        self._rows = self.dice.randrange(6000, 12_000)

    def _spec(self):
        return {**super()._spec(), "query": self.outcome.name}

    def _check_savepoint(self, folder):
        """Read the state of each operator."""
        fields = unseal((folder / "_metadata").read_bytes())
        for operator in fields["operators"].values():
            folders = [f"{folder}/{where}" for where, _ in filter(None, operator["state"])]
            if folders:
                read_savepoint(folders, snapshot=fields["checkpoint"])
        self.outcome.counts["savepoints checked"] += 1

    def _check_rows(self):
        name = self.outcome.name
        rows = nexmark.after_changes(nexmark.result_of(name, self._folder / "out" / "result"))
        tables = nexmark.all_events(self._rows, **nexmark.around_midnight(self._rows))
        self.outcome.counts["rows of answers"] += oracle.check(name, rows, tables)
