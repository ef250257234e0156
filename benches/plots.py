"""Draws docs/plots/*.svg from the results of the bench sweep; the same results give the same bytes.

Text stays text, there is no background, and all colours are readable on white and on black, so the pictures
fit any theme. Each file holds a digest of the results that it was drawn from.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches import harness

PLOTS = Path(__file__).resolve().parent.parent / "docs" / "plots"

INK = "#808890"
#: Readable on white and on black; the first colour is ours.
COLOURS = ("#3f86e8", "#d9731a", "#2f9e62", "#a45fc4")
MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Plot:
    """One picture: its result file, the label of its axis, the names of its lines."""

    result: str
    title: str
    axis: str
    lines: dict[str, str]
    #: Formats a value of the axis.
    tick: Callable[[float], str]
    #: Scale of the rates.
    scale: str = "linear"

    @property
    def path(self) -> Path:
        return PLOTS / f"{self.result.removeprefix('sweep_')}.svg"


def bytes_of(size: float) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g} B"


def number_of(count: float) -> str:
    return f"{count:,.0f}"


DRAWN = (
    Plot(
        "sweep_batch_size",
        "One channel, two processes of one host",
        "size of a batch",
        {
            "headgate": "Headgate, TCP",
            "raw socket": "raw socket, any bytes, TCP",
            "flight": "pyarrow Flight, TCP",
            "same host": "Headgate, shared memory",
        },
        bytes_of,
        "log",
    ),
    Plot(
        "sweep_channels",
        "Many channels, two processes, TCP, batches of 16 KB",
        "channels",
        {"headgate": "Headgate, one connection", "a socket each": "a socket for each, no records"},
        number_of,
    ),
    Plot(
        "sweep_subpartitions",
        "Rows scattered by a hash, one core",
        "subpartitions",
        {
            "headgate": "Headgate, written and read",
            "polars whole": "polars partition_by, all rows at once",
            "polars batches": "polars partition_by, in batches",
        },
        number_of,
    ),
)


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        for plot in DRAWN:
            path = Path(folder) / plot.path.name if options.quick else plot.path
            path.parent.mkdir(exist_ok=True)
            path.write_text(svg(plot), encoding="utf-8")
            print(f"plots: {plot.path.name}, {path.stat().st_size:,} bytes")


def result_of(plot: Plot) -> dict[str, Any]:
    path = harness.RESULTS / f"{plot.result}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def digest(plot: Plot) -> str:
    """Return a digest of everything that a picture shows."""
    shown = [plot.title, plot.axis, plot.lines, plot.scale, result_of(plot)["points"]]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def rates(points: Sequence[dict[str, Any]], line: str) -> list[tuple[int, list[float]]]:
    """Return the points of a line: place, and lowest, median and highest rate in MB/s."""
    own = sorted(
        (point for point in points if point["line"] == line), key=lambda point: point["at"]
    )
    found = []
    for point in own:
        seconds = point["seconds"]
        taken = (max(seconds), statistics.median(seconds), min(seconds))
        found.append((point["at"], [point["bytes"] / one / 1e6 for one in taken]))
    return found


def svg(plot: Plot) -> str:
    """Draw one picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    points = result_of(plot)["points"]
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "headgate",
        "font.family": "sans-serif",
        "font.size": 10,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
        **{f"axes.spines.{side}": False for side in ("top", "right")},
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for (line, label), colour, marker in zip(
            plot.lines.items(), COLOURS, MARKERS, strict=False
        ):
            found = rates(points, line)
            places = [place for place, _ in found]
            low, median, high = zip(*(rate for _, rate in found), strict=True)
            axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(places, median, color=colour, marker=marker, markersize=5, label=label)
        axes.set(title=plot.title, xlabel=plot.axis, ylabel="MB/s", xscale="log", yscale=plot.scale)
        if plot.scale == "log":
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({point["at"] for point in points}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: plot.tick(place)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
        axes.grid(visible=True, axis="y", alpha=0.3, linewidth=0.6)
        axes.legend(frameon=False)
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            path = Path(folder) / "plot.svg"
            metadata = {"Creator": None, "Date": None, "Description": digest(plot)}
            figure.savefig(path, transparent=True, metadata=metadata)
            text = path.read_text(encoding="utf-8")
    # Without a fixed size the picture fits narrow pages; matplotlib leaves blanks at line ends.
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
