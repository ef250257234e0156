"""The arguments of a file source, parsed from string options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from headgate._units import parse_duration, parse_size
from headgate.errors import OptionError
from headgate.source.arguments import Texts
from headgate.source.files.csv_options import CsvOptions

#: Spark's name of the delimiter.
_SEP: Final = "sep"
_CSV: Final = (
    "delimiter",
    _SEP,
    "quoteChar",
    "doubleQuote",
    "escapeChar",
    "header",
    "columnNames",
    "newlinesInValues",
    "nullValues",
    "stringsCanBeNull",
    "quotedStringsCanBeNull",
    "encoding",
)
_KNOWN: Final = (
    "path",
    "paths",
    "format",
    "columns",
    "filesystem",
    "schema",
    "splitSize",
    "batchRows",
    "discoveryInterval",
    "partitioning",
    "order",
    *_CSV,
)

#: Names of types in Spark's DDL -> Arrow's names.
_SPARK_TYPES: Final = {
    "byte": "int8",
    "tinyint": "int8",
    "short": "int16",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "bigint": "int64",
    "real": "float",
    "boolean": "bool",
    "date": "date32",
}
_DECIMAL: Final = re.compile(r"(?:decimal|decimal128)\((\d+),\s*(\d+)\)")
_TIMESTAMP: Final = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}


def arguments_of(source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a file source.

    Raises:
        OptionError: an option is unknown or malformed, or there is no path.
    """
    texts = Texts(source, options, _KNOWN)
    path, paths = texts.text("path"), texts.texts("paths")
    if (path is None) == (paths is None):
        raise OptionError(
            f"{source} needs either path or paths",
            asked=", ".join(f"{name}={text!r}" for name, text in options.items()),
            remedy='option("path", "/data") · option("paths", \'["/a", "/b"]\')',
        )
    kind = texts.text("format", "parquet")
    of_csv = [name for name in _CSV if texts.text(name) is not None]
    if of_csv and kind != "csv":
        raise OptionError(
            f"{of_csv[0]} is an option of CSV files, not of format={kind!r}",
            asked=", ".join(f"{name}={texts.text(name)!r}" for name in of_csv),
            have=f"format={kind!r}",
            remedy=f'option("source", "csv") · leave {" and ".join(of_csv)} out',
        )
    csv = {"csv": _csv(texts)} if of_csv else {}
    interval = texts.get("discoveryInterval", parse_duration, None, 'a duration such as "5s"')
    return {
        "paths": paths if path is None else path,
        "format": kind,
        "columns": texts.texts("columns"),
        "filesystem": texts.text("filesystem"),
        "schema": texts.get("schema", schema_of, None, '"id int64, name string"'),
        "split_size": texts.get("splitSize", parse_size, 64 * 1024 * 1024, 'a size such as "64m"'),
        "batch_rows": texts.integer("batchRows"),
        "discovery_interval": interval,
        "partitioning": texts.text("partitioning"),
        "order": texts.text("order"),
        **csv,
    }


def schema_of(text: str) -> pa.Schema:
    """Return the schema of ``"id int64, price decimal(15,2), name string not null"``.

    Types have their names of Arrow or of Spark's DDL; nested types are not supported.

    Raises:
        ValueError: a field is malformed.
    """
    fields = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return pa.schema([_field(part) for part in fields])


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(" ")
    kind = kind.strip().lower()
    nullable = not kind.endswith(" not null")
    kind = kind.removesuffix(" not null").strip()
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return pa.field(name, pa.decimal128(int(decimal[1]), int(decimal[2])), nullable)
    if kind in _TIMESTAMP:
        return pa.field(name, _TIMESTAMP[kind], nullable)
    return pa.field(name, pa.type_for_alias(_SPARK_TYPES.get(kind, kind)), nullable)


def _csv(texts: Texts) -> CsvOptions:
    delimiter, sep = texts.text("delimiter"), texts.text(_SEP)
    if delimiter is not None and sep is not None:
        raise OptionError(
            "delimiter and sep are two names of one option",
            asked=f"delimiter={delimiter!r}, sep={sep!r}",
            remedy=f'option("delimiter", "{delimiter}") · option("sep", "{sep}")',
        )
    return CsvOptions(
        delimiter=delimiter if delimiter is not None else texts.text(_SEP, ","),
        quote_char=texts.text("quoteChar", '"') or None,
        double_quote=texts.boolean("doubleQuote", True),
        escape_char=texts.text("escapeChar") or None,
        header=texts.boolean("header", True),
        column_names=texts.texts("columnNames", may_be_empty=True),
        newlines_in_values=texts.boolean("newlinesInValues", True),
        null_values=texts.texts("nullValues", may_be_empty=True),
        strings_can_be_null=texts.boolean("stringsCanBeNull", False),
        quoted_strings_can_be_null=texts.boolean("quotedStringsCanBeNull", True),
        encoding=texts.text("encoding", "utf8"),
    )
