"""The metrics: their names, which docs/metrics.md promises, their number, and Prometheus' text."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.runs import EXCHANGE, HOSTILE, state, wide

from headgate.errors import PackageNotFound
from headgate.observe import _extras
from headgate.observe.metrics import MAX_RUNS, METRICS, samples
from headgate.observe.prometheus import StateCollector, exposition

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def scraped(source):
    """Return (name, labels) -> value, as a scraper reads them."""
    families = text_string_to_metric_families(exposition(source).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(found, name, **labels):
    return found[name, tuple(sorted(labels.items()))]


def test_a_scraper_reads_the_numbers_of_the_state():
    found = scraped(state)
    run = {"exchange": EXCHANGE, "run": "2"}
    assert of(found, "headgate_runs", state="running") == 1
    assert of(found, "headgate_run_state", **run, mode="kept", state="running") == 1
    assert of(found, "headgate_num_records_out_total", **run) == 5_100_000
    assert of(found, "headgate_num_bytes_out_total", **run) == 412_000_000
    assert of(found, "headgate_num_tasks", **run, role="map", state="running") == 4
    in_map = {**run, "stage": "map"}
    assert of(found, "headgate_busy_time_ms_per_second", **in_map) == pytest.approx(300)
    assert of(found, "headgate_back_pressured_time_ms_per_second", **in_map) == pytest.approx(600)
    assert of(found, "headgate_busiest_task_ms_per_second", **in_map) == 970
    assert of(found, "headgate_accumulate_busy_time_ms_total", **in_map) == 1100
    failed = {"exchange": "3fa1", "run": "1"}
    assert of(found, "headgate_num_failed_attempts_total", **failed) == 4
    assert of(found, "headgate_num_restarts_total", job="clicks") == 1
    assert of(found, "headgate_last_completed_checkpoint_id", job="clicks") == 7
    assert of(found, "headgate_last_checkpoint_duration_ms", job="clicks") == 120
    assert of(found, "headgate_number_of_in_progress_checkpoints", job="clicks") == 1


def test_the_number_of_series_is_bounded_whatever_the_width():
    few, many = wide(4), wide(2000)
    for found in (few, many):
        found["runs"] = [{**found["runs"][0], "number": number} for number in range(32)]
    assert len(scraped(lambda: many)) == len(scraped(lambda: few))
    assert len(samples(many)["headgate_run_state"]) == MAX_RUNS
    assert samples(many)["headgate_runs"] == [(("running",), 32)]


def test_tasks_that_are_not_listed_one_by_one_count_too():
    found = state()
    run = found["runs"][0]
    run["more_tasks"] = [{"role": "map", "tasks": 9, "states": {"running": 2, "done": 7}}]
    run.update({"number": 7, "producers_running": 500, "consumers_running": 0})
    tasks = dict(samples({**found, "runs": [run]})["headgate_num_tasks"])
    counts = {name[1:]: number for name, number in tasks.items()}
    assert (counts[7, "map", "running"], counts[7, "map", "done"]) == (500, 7), "as Spark counts"
    assert (7, "reduce", "running") not in counts


def test_nothing_from_outside_is_a_name_and_labels_are_escaped():
    found = state()
    found["runs"][2]["name"] = HOSTILE + "\n# TYPE x counter\nx 1"
    text = exposition(lambda: found).decode()
    assert all(line.startswith(("headgate_", "# ")) for line in text.split("\n") if line)
    assert not any(line.startswith("# TYPE x") for line in text.split("\n"))
    jobs = {dict(labels).get("job") for _, labels in scraped(lambda: found)}
    assert found["runs"][2]["name"] in jobs
    assert HOSTILE not in exposition(state).decode()


def test_the_names_are_those_of_the_page():
    promised = re.findall(
        r"^\| `(headgate_\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE
    )
    labels = {name: tuple(re.findall(r"`(\w+)`", words)) for name, _, words in promised}
    kinds = {name: kind for name, kind, _ in promised}
    assert len(METRICS) >= 20
    assert labels == {metric.name: metric.labels for metric in METRICS}
    assert kinds == {metric.name: metric.kind for metric in METRICS}


def test_a_collector_of_ones_own_registry_asks_only_at_a_scrape():
    asked = []

    def source():
        asked.append(True)
        return state()

    registry = CollectorRegistry()
    registry.register(StateCollector(source))
    assert asked == []
    value = registry.get_sample_value("headgate_runs", {"state": "failed"})
    assert (value, asked) == (1, [True])


def test_a_state_without_runs_has_no_series_but_those_of_the_page():
    assert set(scraped(lambda: {"runs": []})) == {
        ("headgate_page_clients", ()),
        ("headgate_page_dropped_clients_total", ()),
    }


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(_extras, "_is_installed", lambda _: False)
    with pytest.raises(PackageNotFound, match=r"headgate\[ui\]"):
        exposition(state)
