"""Jobs that fail at an inconvenient moment: while they stop, commit, restore, or take a savepoint."""

import kit
import pytest

from headgate import errors
from headgate.sink import FileSink


def start(stream, tmp_path, **options):
    sink = FileSink(str(tmp_path / "out"))
    settings = {"parallelism": 2, "checkpoint": str(tmp_path / "checkpoints"), "interval": 0.05}
    return stream.sink(sink, name="files").start(**{**settings, **options})


@pytest.mark.parametrize("alignment", ["unaligned", "timeoutable"])
def test_checkpoints_that_would_lose_rows_in_flight_are_refused(tmp_path, alignment):
    with pytest.raises(errors.NotBuiltError, match="rows in flight"):
        start(kit.numbers(100), tmp_path, alignment=alignment)
