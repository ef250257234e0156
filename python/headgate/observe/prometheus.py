"""The state in Prometheus' text format, under Flink's names (docs/metrics.md). Nothing is registered globally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.observe._extras import require
from headgate.observe.metrics import METRICS, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from headgate.observe.state import Source

#: Of the text format that exposition() returns.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class StateCollector:
    """A collector over the state: it asks for it at each scrape, and keeps nothing.

    Give it to a registry of your own: ``registry.register(StateCollector(RUNS.state))``.

    Args:
        source: returns the state.
        clients: pages that get events now.
        dropped: pages that were too slow, since the start.

    Raises:
        PackageNotFound: prometheus-client is not installed.
    """

    def __init__(self, source: Source, *, clients: int = 0, dropped: int = 0) -> None:
        require("metrics for Prometheus", "ui", "prometheus_client")
        self._source = source
        self._page = {
            "headgate_page_clients": clients,
            "headgate_page_dropped_clients_total": dropped,
        }

    def describe(self) -> list[Metric]:
        """Return nothing: a registry that asks for names is not given the state for them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of now; those without a series are left out."""
        from prometheus_client.core import (  # noqa: PLC0415 - an extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        series = samples(self._source())
        series |= {name: [((), value)] for name, value in self._page.items()}
        for metric in METRICS:
            if not series[metric.name]:
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            exposed = family(metric.name, metric.description, labels=metric.labels)
            for labels, value in series[metric.name]:
                exposed.add_metric([str(label) for label in labels], value)
            yield exposed


def exposition(source: Source, *, clients: int = 0, dropped: int = 0) -> bytes:
    """Return the metrics of now as text.

    Args:
        source: returns the state.
        clients: pages that get events now.
        dropped: pages that were too slow, since the start.

    Raises:
        PackageNotFound: prometheus-client is not installed.
    """
    collector = StateCollector(source, clients=clients, dropped=dropped)
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(collector)
    text: bytes = generate_latest(registry)
    return text
