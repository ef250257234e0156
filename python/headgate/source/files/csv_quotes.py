"""Quotes of a CSV file that are never closed: all rows behind such a one would be a part of one value."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from headgate.source.files.csv_options import CsvOptions


#: Most bytes of a line that an error shows.
_SHOWN: Final = 60


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
        self._quote = _counted_quote(options)
        self._quotes = 0
        self.file = pa.PythonFile(self, mode="r") if self._quote else stream
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


def refuse_torn_lines(chunk: bytes, options: CsvOptions) -> None:
    """Refuse lines that begin or end within quotes: a part of a value would be taken for a row.

    Raises:
        ValueError: there is one.
    """
    quote = _counted_quote(options)
    if not quote or quote not in chunk:
        return
    torn = next((line for line in chunk.splitlines() if line.count(quote) % 2), None)
    if torn is not None:
        raise ValueError(
            f"a value of the line {torn[:_SHOWN].decode(errors='replace')!r} has a newline or a single quote, which "
            "newlines_in_values=False does not allow"
        )


def _counted_quote(options: CsvOptions) -> bytes:
    """Return the quote, if each one opens or closes a value; b"" if there is none, or some are behind an escape."""
    return b"" if options.escape_char else (options.quote_char or "").encode()


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
