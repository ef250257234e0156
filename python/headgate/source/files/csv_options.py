"""How CSV files are written. Apart from what reads them, which takes long to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.source.arguments import refuse


@dataclass(frozen=True, slots=True)
class CsvOptions:
    r"""How CSV files are written.

    Attributes:
        delimiter: one character between values.
        quote_char: one character around values; None where there are no quotes.
        double_quote: whether a quote within quotes is written twice.
        escape_char: one character before one that stands for itself; None for none.
        header: whether the first line of each file has the names of its columns.
        column_names: the names where there is no header; ``f0``, ``f1``, ... without both.
        newlines_in_values: whether quoted values may have newlines. Then a file is one split;
            False lets several readers read one file, and is wrong data where it is not true.
        null_values: texts that stand for null; None for those of pyarrow (empty, ``NA``, ...).
        strings_can_be_null: whether they do in columns of texts too.

    Raises:
        OptionError: a delimiter, quote or escape of another length than one character.
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

    def __post_init__(self) -> None:
        """Check the characters."""
        for name in ("delimiter", "quote_char", "escape_char"):
            value = getattr(self, name)
            if value is None and name != "delimiter":
                continue
            if not isinstance(value, str) or len(value.encode()) != 1:
                raise refuse(name, value, "is not one ASCII character", "one ASCII character")
