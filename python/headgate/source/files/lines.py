"""Byte ranges of text files, cut at ends of lines: every line belongs to exactly one range."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.source.files.format import BATCH_BYTES, Cut, split_of

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Endings of names by which pyarrow detects compression.
_COMPRESSED: Final = (".bz2", ".gz", ".lz4", ".zst")
#: How far a search for the end of a line reads at once.
_SEARCH: Final = 64 * 1024


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed as a whole, as pyarrow detects it."""
    return path.endswith(_COMPRESSED)


def byte_ranges(file: ListedFile, kind: str, cut: Cut, *, whole: bool) -> list[FileSplit]:
    """Return splits of about equal ranges of bytes; one when the file cannot be cut."""
    if file.size == 0:
        return []
    parts = 1 if whole else -(-file.size // cut.limit())
    edges = [file.size * part // parts for part in range(parts + 1)]
    return [split_of(file, kind, start, end, end - start) for start, end in pairwise(edges)]


def line_chunks(files: Files, split: FileSplit, chunk: int = BATCH_BYTES) -> Iterator[bytes]:
    """Yield the lines that begin within a split, whole lines together in about ``chunk`` bytes."""
    if is_compressed(split.path):
        with files.filesystem.open_input_stream(split.path, compression="detect") as stream:
            yield from _stream_chunks(stream, chunk)
        return
    with files.filesystem.open_input_file(split.path) as opened:
        start = line_start(opened, split.start, split.file_size)
        end = line_start(opened, split.end, split.file_size)
        while start < end:
            stop = line_start(opened, min(start + chunk, end), split.file_size)
            yield opened.read_at(stop - start, start)
            start = stop


def line_start(opened: Any, offset: int, size: int) -> int:
    """Return where the first line begins that begins at ``offset`` or later; ``size`` for none."""
    at = offset - 1
    if at < 0:
        return 0
    while at < size:
        block = opened.read_at(min(_SEARCH, size - at), at)
        place = block.find(b"\n")
        if place >= 0:
            return int(at + place + 1)
        if not block:
            break
        at += len(block)
    return size


def _stream_chunks(stream: Any, chunk: int) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(chunk):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest += block
    if rest:
        yield rest
