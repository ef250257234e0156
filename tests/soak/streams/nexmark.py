"""The queries of Nexmark as jobs that the faults hit."""

import time
from pathlib import Path

from benches.nexmark.events import TIMES, Nexmark
from benches.nexmark.queries import FOLDERS, QUERIES
from tests.kit.nexmark import around_midnight
from tests.soak.streams import points

from headgate.sink import FileSink
from headgate.source import NexmarkSource
from headgate.stream import stream
from headgate.stream.state.types import no_rows

#: Rows of a batch, splits of each source, and events in a second, which nothing limits but the gate.
BATCH, SPLITS, RATE = 60, 4, 1_000_000


class GatedNexmark(NexmarkSource):
    """Events, of which each split gives as large a part as a file says, so that a job lasts as long as its faults."""

    def __init__(self, kind, events, gate):
        super().__init__(
            kind, events, rate=RATE, splits=SPLITS, batch_size=BATCH, **around_midnight(events)
        )
        self._gate = Path(gate)

    def open_split(self, split, readers):
        """Look at the file before each batch."""
        at, size = split.position, -(-(self.rows - split.number) // SPLITS)
        while at < size:
            end = min(at + BATCH, int(float(self._gate.read_text()) * size))
            if at < end:
                rows, latest = self._rows_of(split, at, end)
                at = end
                yield rows, at, latest
            else:
                # Without rows, so that another split is due before this one.
                time.sleep(0.005)
                yield no_rows(self.schema), at


class Passing:
    """Returns rows as they are, at a point."""

    def __init__(self, point, pause=0.0):
        self.point, self.pause = point, pause

    def __call__(self, batch):
        points.hit(self.point)
        time.sleep(self.pause)
        return batch


def job(spec):
    """Return the job of a driver."""
    root, name = Path(spec["root"]), spec["query"]

    def rows(kind, columns):
        source = GatedNexmark(kind, spec["rows"], root / "gate")
        every = stream(source, watermarks=TIMES, name=kind).map(Passing("map", spec["pause"]))
        return every.map(lambda batch: batch.select(columns)) if columns else every

    sink = FileSink(root / "out" / "result", mode="append", partition_by=FOLDERS.get(name, ()))
    return QUERIES[name](Nexmark(rows)).map(Passing("process")).sink(sink, name="out")
