"""The metrics of a state: their table, and their samples of now. Prometheus and OpenTelemetry get the same ones.

Decision: ADR 0041.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from headgate.observe.state import STAGE_TIMES, is_running, is_stream
from headgate.observe.view import shares_of_stages

if TYPE_CHECKING:
    from headgate.observe.state import State

#: Runs of exchanges that have series: the newest. So has each streaming job of the record, of which there are at most 32.
MAX_RUNS: Final = 8


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as a scraper sees it; that of a counter ends with ``_total``.
        labels: names of its labels.
        description: the metric and its unit, in a sentence.
    """

    name: str
    labels: tuple[str, ...]
    description: str

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        """The kind, by the name."""
        return "counter" if self.name.endswith("_total") else "gauge"


_RUN: Final = ("exchange", "run")
_STAGE: Final = (*_RUN, "stage")
_OPERATOR: Final = ("job", "operator")
_METRIC: Final = (*_OPERATOR, "metric")
#: Metric of a run -> its attribute.
_OF_RUN: Final = {
    "headgate_run_duration_seconds": "seconds",
    "headgate_num_records_out_total": "rows",
    "headgate_num_records_in_total": "rows_received",
    "headgate_num_bytes_out_total": "bytes",
    "headgate_num_buffers_out_total": "pages",
    "headgate_num_failed_attempts_total": "failed_attempts",
    "headgate_pool_peak_bytes": "peak_bytes",
    "headgate_process_peak_resident_bytes": "peak_resident_bytes",
    "headgate_kept_file_bytes": "file_bytes",
}
#: Counter of what a streaming job has dropped -> its metric.
_DROPPED: Final = {
    "numLateRecordsDropped": "headgate_num_late_records_dropped_total",
    "numExpiredValues": "headgate_num_expired_values_total",
    "numUnknownDeletes": "headgate_num_unknown_deletes_total",
    "numUnreadRecords": "headgate_num_unread_records_total",
    "numDuplicatesDropped": "headgate_num_duplicates_dropped_total",
}
#: Number of the state of a streaming job's operator -> its metric.
_STATE_SIZES: Final = {
    "keys": "headgate_state_keys",
    "bytes_in_memory": "headgate_state_memory_bytes",
    "bytes_in_files": "headgate_state_file_bytes",
}


#: All metrics. Their names and labels are stable; docs/metrics.md has the same table.
METRICS: Final = (
    Metric("headgate_runs", ("state",), "runs of exchanges in the record, by their state"),
    Metric("headgate_run_state", (*_RUN, "mode", "state"), "1 for the state of the run"),
    Metric("headgate_run_duration_seconds", _RUN, "seconds of the run so far"),
    Metric("headgate_num_tasks", (*_RUN, "role", "state"), "tasks, by role and state"),
    Metric("headgate_num_records_out_total", _RUN, "rows that the producers sent"),
    Metric("headgate_num_records_in_total", _RUN, "rows that the consumers read"),
    Metric("headgate_num_bytes_out_total", _RUN, "bytes of pages that were sent"),
    Metric("headgate_num_buffers_out_total", _RUN, "buffers that were sent"),
    Metric("headgate_num_failed_attempts_total", _RUN, "attempts at tasks that failed"),
    Metric("headgate_pool_peak_bytes", _RUN, "peak pool usage of the fullest process"),
    Metric(
        "headgate_process_peak_resident_bytes",
        _RUN,
        "peak resident memory of the worker's process with the highest one",
    ),
    Metric("headgate_kept_file_bytes", _RUN, "bytes in files of a kept exchange"),
    Metric("headgate_busy_time_ms_per_second", _STAGE, "ms/s, mean over the tasks"),
    Metric("headgate_idle_time_ms_per_second", _STAGE, "ms/s waiting for upstream, mean"),
    Metric("headgate_back_pressured_time_ms_per_second", _STAGE, "ms/s waiting downstream, mean"),
    Metric("headgate_busiest_task_ms_per_second", _STAGE, "busy ms/s of the busiest task"),
    Metric("headgate_accumulate_busy_time_ms_total", _STAGE, "ms, summed over tasks"),
    Metric("headgate_accumulate_idle_time_ms_total", _STAGE, "ms, summed over tasks"),
    Metric("headgate_accumulate_back_pressured_time_ms_total", _STAGE, "ms, summed over tasks"),
    Metric("headgate_num_restarts_total", ("job",), "restarts of a streaming job"),
    Metric("headgate_last_completed_checkpoint_id", ("job",), "id of the last one complete"),
    Metric("headgate_last_checkpoint_duration_ms", ("job",), "ms of the last one complete"),
    Metric("headgate_last_checkpoint_size_bytes", ("job",), "bytes that it wrote"),
    Metric("headgate_number_of_in_progress_checkpoints", ("job",), "pending checkpoints"),
    Metric(
        "headgate_num_late_records_dropped_total",
        _OPERATOR,
        "rows that came too late for their windows and that no side output took",
    ),
    Metric(
        "headgate_num_expired_values_total",
        _OPERATOR,
        "values of state that were dropped after their time to live",
    ),
    Metric(
        "headgate_num_unknown_deletes_total",
        _OPERATOR,
        "rows that changes took away and that a join did not have",
    ),
    Metric("headgate_num_unread_records_total", _OPERATOR, "rows of outputs that nothing reads"),
    Metric("headgate_num_duplicates_dropped_total", _OPERATOR, "rows that deduplicate() dropped"),
    Metric("headgate_state_keys", _OPERATOR, "keys of state, over all tasks"),
    Metric("headgate_state_memory_bytes", _OPERATOR, "bytes of state in memory"),
    Metric("headgate_state_file_bytes", _OPERATOR, "bytes of state in mapped files"),
    Metric("headgate_user_counter_total", _METRIC, "a counter of a function, over all tasks"),
    Metric("headgate_user_gauge", (*_METRIC, "task"), "a gauge of a function in a task"),
    Metric("headgate_user_histogram_bucket_total", (*_METRIC, "le"), "numbers up to a limit"),
    Metric("headgate_user_histogram_count_total", _METRIC, "numbers that a histogram has counted"),
    Metric("headgate_user_histogram_sum", _METRIC, "sum of these numbers"),
    Metric("headgate_user_tally_total", (*_METRIC, "text"), "how often a text of a tally occurred"),
    Metric("headgate_page_clients", (), "pages that get events now"),
    Metric("headgate_page_dropped_clients_total", (), "pages that were too slow"),
)
#: For each metric the values of its labels, and its value.
Samples: TypeAlias = dict[str, list[tuple[tuple[Any, ...], float]]]


def samples(state: State) -> Samples:
    """Return the samples of a state. A metric without any has an empty list."""
    series: Samples = {metric.name: [] for metric in METRICS}
    exchanges = [run for run in state["runs"] if run["mode"] == "kept"]
    states = Counter(run["state"] for run in exchanges)
    series["headgate_runs"] = [((name,), number) for name, number in states.items()]
    for run in exchanges[:MAX_RUNS]:
        _add_exchange(series, run)
    for run in state["runs"]:
        if is_stream(run) and is_running(run):
            _add_job(series, run)
    return series


def _add_exchange(series: Samples, run: State) -> None:
    name = run["name"], run["number"]
    series["headgate_run_state"].append(((*name, run["mode"], run["state"]), 1))
    for metric, attribute in _OF_RUN.items():
        series[metric].append((name, run[attribute]))
    for (role, task_state), number in _tasks(run).items():
        series["headgate_num_tasks"].append(((*name, role, task_state), number))
    now = shares_of_stages(run)
    for stage in run["stages"]:
        labels = (*name, stage["name"])
        busiest = 1000 * (stage["busiest_share"] or 0.0)
        series["headgate_busiest_task_ms_per_second"].append((labels, busiest))
        for time in STAGE_TIMES:
            word = time.removesuffix("_ms")
            series[f"headgate_accumulate_{word}_time_ms_total"].append((labels, stage[time]))
            if (share := now[stage["name"]][word]) is not None:
                series[f"headgate_{word}_time_ms_per_second"].append((labels, 1000 * share))


def _tasks(run: State) -> Counter[tuple[str, str]]:
    """Return the number of tasks for each role and state."""
    tasks = Counter((task["role"], task["state"]) for task in run["tasks"])
    for more in run["more_tasks"]:
        tasks.update({(more["role"], word): n for word, n in more["states"].items()})
    for role, side in (("map", "producers"), ("reduce", "consumers")):
        tasks[role, "running"] = run[f"{side}_running"]  # not all that run are listed
    return +tasks


def _add_job(series: Samples, run: State) -> None:
    name = (run["name"],)
    checkpoints = run["checkpoints"]
    pending = sum(checkpoint["status"] == "pending" for checkpoint in checkpoints)
    series["headgate_num_restarts_total"].append((name, run["restarts"]))
    series["headgate_number_of_in_progress_checkpoints"].append((name, pending))
    for operator, counters in run["dropped"].items():
        for counter, number in counters.items():
            if (metric := _DROPPED.get(counter)) is not None:
                series[metric].append(((*name, operator), number))
    for operator, sizes in run["state_sizes"].items():
        for size, metric in _STATE_SIZES.items():
            series[metric].append(((*name, operator), sizes[size]))
    for operator, metrics in run["metrics"].items():
        for metric_name, figures in metrics.items():
            _add_metric(series, (*name, operator, metric_name), figures)
    for last in [checkpoint for checkpoint in checkpoints if checkpoint["status"] == "complete"][
        -1:
    ]:
        series["headgate_last_completed_checkpoint_id"].append((name, last["checkpoint"]))
        series["headgate_last_checkpoint_duration_ms"].append((name, last["duration"] or 0))
        series["headgate_last_checkpoint_size_bytes"].append((name, last["bytes"]))


def _add_metric(series: Samples, labels: tuple[str, ...], figures: State) -> None:
    """Add a metric of a function; the buckets of a histogram are cumulative, as in Prometheus."""
    if figures["kind"] == "counter":
        series["headgate_user_counter_total"].append((labels, figures["value"]))
    elif figures["kind"] == "gauge":
        for task, value in figures["values"].items():
            series["headgate_user_gauge"].append(((*labels, task), value))
    elif figures["kind"] == "tally":
        for text, (number, _) in figures["values"].items():
            series["headgate_user_tally_total"].append(((*labels, text), number))
    else:
        limits = [*map(str, figures["bounds"]), "+Inf"]
        for limit, number in zip(limits, accumulate(figures["counts"]), strict=True):
            series["headgate_user_histogram_bucket_total"].append(((*labels, limit), number))
        series["headgate_user_histogram_count_total"].append((labels, figures["count"]))
        series["headgate_user_histogram_sum"].append((labels, figures["sum"]))
