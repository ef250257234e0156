"""The plots in the docs were drawn from the recorded results."""

import json
import re

import pytest
from benches import harness, plots

PLOTS = pytest.mark.parametrize("plot", plots.DRAWN, ids=lambda plot: plot.result)


@PLOTS
def test_a_picture_was_drawn_from_the_results_that_are_kept(plot):
    picture = plot.path.read_text(encoding="utf-8")
    assert plots.digest(plot) in picture, "the plot is out of date: run make bench NAME=plots"
    for label in (plot.title, plot.axis, *plot.lines.values()):
        assert f">{label}<" in picture


@PLOTS
def test_a_picture_is_small_and_has_no_date_and_no_background(plot):
    picture = plot.path.read_text(encoding="utf-8")
    assert len(picture) < 40_000
    assert not re.search(r"<dc:date>|20\d\d-\d\d", picture)
    (background,) = re.findall(r'<g id="patch_1">(.*?)</g>', picture, re.DOTALL)
    assert "fill: none" in background


@PLOTS
def test_the_same_results_give_the_same_picture(plot):
    assert plots.svg(plot) == plots.svg(plot)


def test_other_results_give_another_digest(tmp_path, monkeypatch):
    plot = plots.DRAWN[0]
    before = plots.digest(plot)
    result = plots.result_of(plot)
    result["points"][0]["seconds"][0] += 1
    (tmp_path / f"{plot.result}.json").write_text(json.dumps(result), encoding="utf-8")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    assert plots.digest(plot) != before


@PLOTS
def test_every_line_has_a_rate_at_every_place(plot):
    points = plots.result_of(plot)["points"]
    places = {point["at"] for point in points}
    assert len(places) >= 5
    for line in plot.lines:
        found = plots.rates(points, line)
        assert {place for place, _ in found} == places
        assert all(0 < low <= median <= high for _, (low, median, high) in found)
    assert {point["line"] for point in points} == set(plot.lines)
