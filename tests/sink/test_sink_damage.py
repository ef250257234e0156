"""A bit that changes in a file of a sink is an error. It moves, removes or hides nothing."""

import os

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.kit import sinks

from headgate.errors import SinkError
from headgate.sink import FileSink, Recovered, write
from headgate.sink.journal import Journal, Move
from headgate.sink.staging import Committable, StagedFile


def damaged(text):
    """Return a text with each bit flipped, and cut off after each byte."""
    for place in range(len(text)):
        for bit in range(8):
            yield text[:place] + bytes([text[place] ^ (1 << bit)]) + text[place + 1 :]
        yield text[:place]


def test_every_bit_of_a_journal(path):
    write(sinks.numbers(10, 13), FileSink(path))
    sinks.decided(path, sinks.dead_owner())
    file = sinks.staged(path)
    journal = file.parent.parent / "_commit.json"
    job, old = file.parent.parent.name, next(path.glob("part-*")).name
    source = f"_staging/{job}/{file.parent.name}/{file.name}"
    move = Move(source, f"part-{job}-00000-00000.parquet", file.stat().st_size)
    text = Journal(job, (move,), (old,), None, 3).to_json()
    before = None
    for number, wrong in enumerate(damaged(text)):
        journal.write_bytes(wrong)
        with pytest.raises(SinkError, match=r"the journal .*_commit\.json cannot be read"):
            FileSink(path).recover()
        if before is None:
            before = tree(path)
        assert tree(path) == before, (number, wrong)
    journal.write_bytes(text)
    assert FileSink(path).recover() == Recovered((job,))
    assert sinks.rows(path) == [0, 1, 2]


def tree(path):
    return sorted(os.walk(path))


def test_every_bit_of_the_facts_of_a_job(path):
    """Nobody can tell any more who runs the job, so it lives as long as its files are new."""
    committer, found = sinks.begun(path)
    file = sinks.staged(path)
    facts = file.parent.parent / "_job.json"
    text = facts.read_bytes()
    for wrong in damaged(text):
        facts.write_bytes(wrong)
        assert FileSink(path).recover() == Recovered(), wrong
        assert file.exists(), wrong
    assert committer.commit(0, [found]).rows == 3
    assert sinks.rows(path) == [0, 1, 2]
    assert sinks.left(path) == []


def test_every_bit_of_a_committable():
    found = Committable("job", 7, 3, "attempt", (StagedFile("part-00000.arrow", 5, 100),))
    assert Committable.from_bytes(found.to_bytes()) == found
    for wrong in damaged(found.to_bytes()):
        with pytest.raises(SinkError, match="this is no committable"):
            Committable.from_bytes(wrong)


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_every_bit_of_the_pages_of_a_staged_parquet_file(path, compression):
    """Readers that verify the checksums of pages see it; the footer has no checksum."""
    sink = FileSink(path, compression=compression)
    table = pa.table({"n": pa.array(range(12), pa.int64()), "s": [f"row {n}" for n in range(12)]})
    write(table, sink)
    (file,) = path.glob("part-*")
    text = file.read_bytes()
    end = len(text) - 8 - int.from_bytes(text[-8:-4], "little")
    seen = 0
    for place in range(4, end):
        for bit in range(8):
            wrong = text[:place] + bytes([text[place] ^ (1 << bit)]) + text[place + 1 :]
            try:
                read = parquet.read_table(
                    pa.BufferReader(wrong), page_checksum_verification=True, use_threads=False
                )
            except (OSError, pa.ArrowException):
                seen += 1
                continue
            assert read.equals(table), (place, bit)
    assert seen > (end - 4) * 4
