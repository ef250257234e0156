"""The cost of looking: the keyed job of ``benches/spark.py`` with everything on that shows it, and with everything off.

- ``unseen``: ``progress="off"``, no page, no telemetry
- ``seen``: progress lines, the live page with one client that takes its events and one that scrapes its metrics, both once
  a second in another process, and OpenTelemetry's metrics and spans into memory

Both run on ``local[2]``, so what looks on takes its time from the same two cores as the job.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http.cookiejar import CookieJar
from multiprocessing.connection import Connection

from benches import harness, spark
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import DataFrame

from headgate.observe.otel import Telemetry
from headgate.spark import exchange, ui

MASTER = "local[2]"


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    session = spark.session(MASTER)
    try:
        rows = spark.ROWS // 20 if options.quick else spark.ROWS
        flow = spark.rows_of(session, rows)
        harness.compare(
            "seeing",
            f"{rows:,} rows by key on {MASTER}, kept, to the noop sink",
            {
                "unseen": saving(flow, "off"),
                "seen": watched(saving(flow, "auto")),
            },
            [
                harness.Ratio("seeing", "unseen", "seen", goal=0.98),
            ],
            turns=options.turns,
            size=rows * spark.ROW_BYTES,
            quick=options.quick,
        )
    finally:
        session.stop()


def saving(flow: DataFrame, progress: str) -> Callable[[], float]:
    same = {"map": spark.same, "reduce": spark.same, "schema": flow.schema}
    return spark.saving(
        lambda: exchange(flow, by="key", mode="kept", progress=progress, **same)  # type: ignore[arg-type]
    )


def watched(run: Callable[[], float]) -> Callable[[], float]:
    """Return the function with everything on around it; setting that up and down is not counted."""

    def seen() -> float:
        with ExitStack() as stack:
            page = stack.enter_context(ui())
            stack.enter_context(telemetry())
            client = stack.enter_context(harness.process(partial(look, page.address)))
            client.recv()
            seconds = run()
            client.send("enough")
            events, scrapes = client.recv()
            if not events or not scrapes:
                raise AssertionError(f"nobody has looked: {events} events, {scrapes} scrapes")
            return seconds

    return seen


@contextmanager
def telemetry() -> Iterator[None]:
    """Have OpenTelemetry take metrics once a second, and spans."""
    reader, tracer = InMemoryMetricReader(), TracerProvider()
    tracer.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    meter, is_over = MeterProvider([reader]), threading.Event()

    def collect() -> None:
        while not is_over.wait(1.0):
            reader.collect()

    thread = threading.Thread(target=collect)
    with Telemetry(meter_provider=meter, tracer_provider=tracer):
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
    tracer.shutdown()
    meter.shutdown()


def look(address: str, connection: Connection) -> None:
    """Be a browser and a scraper, until the other process says that it is enough; then tell it what came."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    base = address.partition("?")[0]
    browser.open(address).read()
    counts = {"events": 0, "scrapes": 0}
    is_over = threading.Event()

    def take() -> None:
        with browser.open(f"{base}events") as stream:
            for line in stream:
                counts["events"] += line.startswith(b"data:")
                if is_over.is_set():
                    return

    def scrape() -> None:
        while True:
            browser.open(f"{base}metrics").read()
            counts["scrapes"] += 1
            if is_over.wait(1.0):
                return

    threads = [threading.Thread(target=body, daemon=True) for body in (take, scrape)]
    for thread in threads:
        thread.start()
    connection.send("looking")
    connection.recv()
    is_over.set()
    for thread in threads:
        thread.join()
    connection.send((counts["events"], counts["scrapes"]))
