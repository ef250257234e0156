"""Quotes of a CSV file that are never closed: all rows behind such a one would be a part of one value."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from headgate.source.files.csv_options import CsvOptions


class QuoteCounter:
    """Counts the quotes of a file while it is read.

    Args:
        stream: the bytes of the file.
        options: the dialect.

    Attributes:
        file: the same bytes, for pyarrow.
    """

    def __init__(self, stream: Any, options: CsvOptions) -> None:
        self._stream = stream
        self._quote = (options.quote_char or "").encode()
        self._quotes = 0
        # A quote behind an escape opens nothing.
        counts = bool(self._quote) and not options.escape_char
        self.file = pa.PythonFile(self, mode="r") if counts else stream
        self.closed = False

    @property
    def is_odd(self) -> bool:
        """True if a quote may never be closed; single ones within unquoted values count too."""
        return self._quotes % 2 == 1

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = bytes(self._stream.read(None if size < 0 else size))
        self._quotes += data.count(self._quote)
        return data

    def close(self) -> None:
        """Leave the stream to whom it belongs."""
        self.closed = True


def refuse_open_quote(stream: Any, options: CsvOptions) -> None:
    """Check that the last quote of a file is closed.

    Raises:
        ValueError: it is not.
    """
    text = io.TextIOWrapper(stream, options.encoding, newline="")
    rows = csv.reader(
        text,
        delimiter=options.delimiter,
        quotechar=options.quote_char,
        doublequote=options.double_quote,
        strict=True,
    )
    line = 0
    try:
        for _ in rows:
            line = rows.line_num
    except csv.Error as error:
        # Of all errors these two tell of a quote without an end; others are of text behind a quote.
        if "unexpected end" in str(error) or "field larger" in str(error):
            raise ValueError(
                f"a quote in line {line + 1} or behind it is never closed, so that the rows behind it are in one value"
            ) from error
