"""Features of a table's protocol and types of its columns, as far as this source reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate._nested import with_inner
from headgate.errors import NotBuiltError
from headgate.source.tables.columns import keyed, nullable_inside

_MAPPING: Final = "columnMapping"
#: Features of readers that are read. All others are refused by their names.
READ: Final = frozenset(
    {
        _MAPPING,
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        # deltalake lists it for tables without such columns too; the columns themselves are refused.
        "variantType",
        "variantType-preview",
    }
)
_NEWEST: Final = 3
#: Version of the protocol that has the mapping of columns without a list of features.
_MAPPED_BY_VERSION: Final = 2
_SPARK: Final = 'spark.read.format("delta")'
_MODE: Final = "delta.columnMapping.mode"


def check_protocol(name: str, version: int, features: Iterable[str] | None) -> None:
    """Refuse a table that has to be read by rules that are not known here.

    Raises:
        NotBuiltError: the table has such a feature; the error names it.
    """
    unknown = sorted(set(features or ()) - READ)
    if version > _NEWEST or unknown:
        raise NotBuiltError(
            f"{name} has the feature {', '.join(unknown)} of Delta, which is not read here"
            if unknown
            else f"{name} is of version {version} of Delta's protocol for readers",
            asked=f"minReaderVersion {version}, readerFeatures {', '.join(sorted(features or ()))}",
            have=f"up to version {_NEWEST}; {', '.join(sorted(READ))}",
            remedy=f"{_SPARK} · drop the feature: alter table ... drop feature",
            details={"features": unknown},
        )


def check_mapping(
    name: str, version: int, features: Iterable[str] | None, configuration: Mapping[str, str]
) -> None:
    """Refuse a table that maps its columns by a property alone.

    Spark goes by the property, Delta's kernel and deltalake by the protocol, so files may have either names.

    Raises:
        NotBuiltError: its protocol does not have the feature.
    """
    mode = configuration.get(_MODE, "none")
    has_feature = version == _MAPPED_BY_VERSION or _MAPPING in (features or ())
    if mode != "none" and not has_feature:
        raise NotBuiltError(
            f"{name} has {_MODE}={mode}, and its protocol does not have the feature {_MAPPING}: readers do "
            "not agree which names its files have",
            asked=f"minReaderVersion {version}, readerFeatures {', '.join(sorted(features or ()))}",
            remedy=f"write it anew, with delta.feature.{_MAPPING}=supported",
        )


def table_schema(text: str, configuration: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a table with their keys.

    Args:
        text: the schema in the log, as JSON.
        configuration: properties of the table.

    Raises:
        NotBuiltError: the mode of column mapping is not known.
    """
    from deltalake import Schema  # noqa: PLC0415 - optional

    mode = configuration.get(_MODE, "none")
    if mode not in {"none", "name", "id"}:
        raise NotBuiltError(f"{_MODE}={mode!r} is not known", have="none, name, id", remedy=_SPARK)
    schema = pa.schema(Schema.from_json(text).to_arrow())
    return pa.schema(
        [_keyed(field.with_type(nullable_inside(field.type)), mode) for field in schema]
    )


def unread_columns(text: str, partitions: Iterable[str], schema: pa.Schema) -> dict[str, str]:
    """Return why columns are not read, by their names.

    Args:
        text: the schema in the log, as JSON.
        partitions: names of the columns by which the table is partitioned.
        schema: the same as Arrow's.
    """
    reasons = {
        field["name"]: "has the type variant"
        for field in json.loads(text)["fields"]
        if _has_variant(field["type"])
    }
    for name in partitions:
        kind = schema.field(name).type
        if pt.is_timestamp(kind) and kind.tz is not None:
            reasons[name] = (
                "is a timestamp in the names of partitions, and the log need not say in which zone"
            )
        elif pt.is_binary(kind):
            reasons[name] = (
                "is binary in the names of partitions, which writers encode in several ways"
            )
    return reasons


def _has_variant(kind: Any) -> bool:
    """Return True for a type with a variant in it; ``kind`` is a type as JSON."""
    if isinstance(kind, str):
        return kind == "variant"
    inner = [kind.get(part) for part in ("elementType", "keyType", "valueType")]
    inner += [field["type"] for field in kind.get("fields", ())]
    return any(_has_variant(part) for part in inner if part is not None)


def _keyed(field: pa.Field, mode: str) -> pa.Field:
    entries = field.metadata or {}
    key = field.name
    if mode != "none":
        part = b"delta.columnMapping." + (b"id" if mode == "id" else b"physicalName")
        if part in entries:
            key = ("#" if mode == "id" else "") + entries[part].decode()
    inner = with_inner(field.type, lambda child: _keyed(child, mode))
    return keyed(field.with_type(inner), key)
