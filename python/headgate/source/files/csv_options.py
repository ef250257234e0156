"""The dialect of CSV files, apart from the CSV reader, which is slow to import."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate._arguments import flag, refuse
from headgate._kinds import kind_of
from headgate.errors import OptionError
from headgate.source.files.content import extends_ascii

_FLAGS: Final = (
    *("double_quote", "header", "newlines_in_values"),
    *("strings_can_be_null", "quoted_strings_can_be_null"),
)


@dataclass(frozen=True, slots=True)
class CsvOptions:
    r"""The dialect of CSV files.

    Attributes:
        delimiter: the character between values.
        quote_char: the character around values; None if values are not quoted.
        double_quote: True if a quote within quotes is doubled.
        escape_char: the character before an escaped one; None for no escapes.
        header: True if the first line of each file has the names of the columns.
        column_names: the names of the columns if there is no header; by default ``f0``, ``f1``...
        newlines_in_values: True if quoted values may contain newlines; a file is one split then.
            False lets several readers read one file, but corrupts values that do contain newlines.
        null_values: strings that mean null; None for pyarrow's (empty, ``NA``, ...).
        strings_can_be_null: True if ``null_values`` apply to columns of strings too.
        quoted_strings_can_be_null: True if ``null_values`` apply to values in quotes too. With False,
            an empty text in quotes is not null, as :class:`headgate.sink.FileSink` writes them.
        encoding: the encoding of the files, by one of Python's names, such as ``"latin-1"``, ``"cp1252"`` or
            ``"utf-16"``. Bytes that are not of the encoding are an error. Columns of bytes are not decoded as
            UTF-8, and have UTF-8 in place of another encoding.

    Raises:
        OptionError: the delimiter, quote or escape is not one character; the encoding is unknown, or does not
            extend ASCII although ``newlines_in_values`` is False.
    """

    delimiter: str = ","
    quote_char: str | None = '"'
    double_quote: bool = True
    escape_char: str | None = None
    header: bool = True
    column_names: Sequence[str] | None = None
    newlines_in_values: bool = True
    null_values: Sequence[str] | None = None
    strings_can_be_null: bool = False
    quoted_strings_can_be_null: bool = True
    encoding: str = "utf8"

    def __post_init__(self) -> None:
        """Check the characters."""
        for name in ("delimiter", "quote_char", "escape_char"):
            value = getattr(self, name)
            if value is None and name != "delimiter":
                continue
            if not isinstance(value, str) or len(value.encode()) != 1:
                raise refuse(name, value, "is not one ASCII character", "one ASCII character")
        for name in _FLAGS:
            flag(name, getattr(self, name))
        for name in ("column_names", "null_values"):
            value = getattr(self, name)
            is_several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
            if value is not None and not (
                is_several and all(isinstance(text, str) for text in value)
            ):
                raise refuse(name, value, f"is {kind_of(value)}", "a list of texts")
        self._check_encoding()

    def _check_encoding(self) -> None:
        encoding: object = self.encoding
        takes = 'a name such as "utf8", "latin-1", "cp1252" or "utf-16"'
        if not isinstance(encoding, str):
            raise refuse("encoding", encoding, f"is {kind_of(encoding)}", takes)
        try:
            "".encode(encoding)
            decoder = codecs.lookup(encoding).incrementaldecoder
        except (LookupError, ValueError):
            decoder = None
        if decoder is None:
            raise refuse("encoding", encoding, "is no encoding of text", takes)
        if not self.newlines_in_values and not extends_ascii(encoding):
            raise OptionError(
                f"encoding={encoding!r} needs newlines_in_values=True: bytes that end a line in ASCII mean something else",
                asked=f"encoding={encoding!r}, newlines_in_values=False",
                remedy="newlines_in_values=True, which reads each file as one split · files in UTF-8",
            )
