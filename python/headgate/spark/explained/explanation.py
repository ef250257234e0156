"""What ``explain()`` returns: fields, which it shows as text, HTML and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headgate.spark.explained.rendering import html, text

if TYPE_CHECKING:
    from headgate.spark.explained.fields import ExchangeExplained, Hop


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the exchanges of a plan will run. It prints as text and displays as HTML in a notebook.

    Attributes:
        schema_version: of the JSON form.
        exchanges: in the order in which rows pass them.
        hops: the ways of the rows to each exchange, and from the last ones.
        versions: of the driver, or the client of Spark Connect.
    """

    schema_version: int
    exchanges: tuple[ExchangeExplained, ...]
    hops: tuple[Hop, ...]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Return all fields as one JSON object of version ``schema_version``."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        """Return lines of at most 100 characters."""
        return text(self.exchanges, self.hops)

    def _repr_html_(self) -> str:
        return html(self.exchanges, self.hops)
