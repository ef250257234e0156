"""Byte ranges of text files. Each line belongs to the range in which it starts.

A line ends with a line feed, a carriage return or both, as for pyarrow's readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.source.files.content import is_compressed, open_decompressed
from headgate.source.files.format import BATCH_BYTES, Planning, split_of

if TYPE_CHECKING:
    from headgate.source.files.listing import Files
    from headgate.source.files.split import FileSplit, ListedFile

#: Bytes of one read in the search for the end of a line.
_SEARCH: Final = 64 * 1024
_END: Final = re.compile(rb"\n|\r(?!\n)")


def byte_ranges(file: ListedFile, kind: str, planning: Planning, *, whole: bool) -> list[FileSplit]:
    """Return splits of about equal byte ranges; one split if the file must stay whole."""
    if file.size == 0:
        return []
    parts = 1 if whole else -(-file.size // planning.limit())
    edges = [file.size * part // parts for part in range(parts + 1)]
    return [split_of(file, kind, start, end, end - start) for start, end in pairwise(edges)]


def line_chunks(files: Files, split: FileSplit, chunk: int = BATCH_BYTES) -> Iterator[bytes]:
    """Yield the lines that start within a split, in chunks of about ``chunk`` bytes."""
    if is_compressed(split.path):
        with open_decompressed(files, split.path) as stream:
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
    """Return the start of the first line at or after ``offset``; ``size`` if there is none."""
    at = offset - 1
    if at < 0:
        return 0
    while at < size:
        block = opened.read_at(min(max(_SEARCH, 2), size - at), at)
        end = _END.search(block)
        is_last = at + len(block) >= size
        if end and (is_last or end.end() < len(block) or end[0] == b"\n"):
            return int(at + end.end())
        if not block:
            break
        # A line feed may follow a carriage return at the end of the block.
        at += len(block) - (1 if end else 0)
    return size


def _stream_chunks(stream: Any, chunk: int) -> Iterator[bytes]:
    waiting: list[bytes] = []
    while block := stream.read(chunk):
        # A line feed may follow a carriage return at the end of the block.
        cut = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
        if cut:
            yield b"".join([*waiting, block[:cut]])
            waiting = []
        waiting.append(block[cut:])
    if any(waiting):
        yield b"".join(waiting)
