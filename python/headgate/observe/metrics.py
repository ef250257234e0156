"""The metrics of a state: their table, and their samples of now. Prometheus and OpenTelemetry get the same ones.

Decision: ADR 0041.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from headgate.observe.runs import STREAM_OVER
from headgate.observe.view import shares_of_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.observe.view import State

#: Runs that have series: the newest. So has each streaming job of the record, of which there are at most 32.
MAX_RUNS: Final = 8


@dataclass(frozen=True, slots=True)
class Named:
    """One metric.

    Attributes:
        name: as a scraper sees it; that of a counter ends with ``_total``.
        kind: ``"counter"`` or ``"gauge"``.
        labels: names of its labels.
        words: what it is, with its unit.
    """

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    words: str


_RUN: Final = ("exchange", "run")
_STAGE: Final = (*_RUN, "stage")

#: All metrics. Their names and labels are stable; docs/metrics.md has the same table.
METRICS: Final = (
    Named("headgate_runs", "gauge", ("state",), "runs in the record, by their state"),
    Named("headgate_run_state", "gauge", (*_RUN, "mode", "state"), "1 for the state of the run"),
    Named("headgate_run_duration_seconds", "gauge", _RUN, "seconds of the run so far"),
    Named("headgate_num_tasks", "gauge", (*_RUN, "role", "state"), "tasks, by role and state"),
    Named("headgate_num_records_out_total", "counter", _RUN, "rows that the producers sent"),
    Named("headgate_num_records_in_total", "counter", _RUN, "rows that the consumers read"),
    Named("headgate_num_bytes_out_total", "counter", _RUN, "bytes of pages that were sent"),
    Named("headgate_num_buffers_out_total", "counter", _RUN, "buffers that were sent"),
    Named("headgate_num_failed_attempts_total", "counter", _RUN, "attempts at tasks that failed"),
    Named("headgate_pool_peak_bytes", "gauge", _RUN, "peak pool usage of the fullest process"),
    Named("headgate_kept_file_bytes", "gauge", _RUN, "bytes in files of a kept exchange"),
    Named("headgate_busy_time_ms_per_second", "gauge", _STAGE, "ms/s, mean over the tasks"),
    Named("headgate_idle_time_ms_per_second", "gauge", _STAGE, "ms/s waiting for upstream, mean"),
    Named(
        "headgate_back_pressured_time_ms_per_second",
        "gauge",
        _STAGE,
        "ms/s waiting for downstream, mean",
    ),
    Named("headgate_busiest_task_ms_per_second", "gauge", _STAGE, "busy ms/s of the busiest task"),
    Named("headgate_accumulate_busy_time_ms_total", "counter", _STAGE, "ms, summed over tasks"),
    Named("headgate_accumulate_idle_time_ms_total", "counter", _STAGE, "ms, summed over tasks"),
    Named(
        "headgate_accumulate_back_pressured_time_ms_total",
        "counter",
        _STAGE,
        "ms, summed over tasks",
    ),
    Named("headgate_num_restarts_total", "counter", ("job",), "restarts of a streaming job"),
    Named(
        "headgate_last_completed_checkpoint_id", "gauge", ("job",), "id of the last one complete"
    ),
    Named("headgate_last_checkpoint_duration_ms", "gauge", ("job",), "ms of the last one complete"),
    Named("headgate_last_checkpoint_size_bytes", "gauge", ("job",), "bytes that it wrote"),
    Named("headgate_number_of_in_progress_checkpoints", "gauge", ("job",), "pending checkpoints"),
    Named(
        "headgate_num_late_records_dropped_total",
        "counter",
        ("job", "operator"),
        "rows that came too late for their windows and that no side output took",
    ),
    Named(
        "headgate_num_expired_values_total",
        "counter",
        ("job", "operator"),
        "values of state that were dropped after their time to live",
    ),
    Named(
        "headgate_num_unread_records_total",
        "counter",
        ("job", "operator"),
        "rows of outputs that nothing reads",
    ),
    Named("headgate_page_clients", "gauge", (), "pages that get events now"),
    Named("headgate_page_dropped_clients_total", "counter", (), "pages that were too slow"),
)
_TIMES: Final = ("busy", "idle", "back_pressured")
#: Counter in a streaming job's status -> metric.
_DROPPED: Final = {
    "numLateRecordsDropped": "headgate_num_late_records_dropped_total",
    "numExpiredValues": "headgate_num_expired_values_total",
    "numUnreadRecords": "headgate_num_unread_records_total",
}
#: For each metric the values of its labels, and its value.
Samples: TypeAlias = dict[str, list[tuple[tuple[Any, ...], float]]]


def samples(state: State) -> Samples:
    """Return the samples of a state. A metric without any has an empty list."""
    runs: Sequence[State] = state.get("runs") or []
    found: Samples = {metric.name: [] for metric in METRICS}
    found["headgate_runs"] = [
        ((name,), number) for name, number in Counter(run["state"] for run in runs).items()
    ]
    for run in runs[:MAX_RUNS]:
        _add_run(found, run)
    for stream in state.get("streams") or []:
        if stream.get("state") not in STREAM_OVER:
            _add_stream(found, stream)
    return found


def _add_run(found: Samples, run: State) -> None:
    name = run["exchange_id"], run["run"]
    found["headgate_run_state"].append(((*name, run["mode"], run["state"]), 1))
    numbers = {
        "headgate_run_duration_seconds": "seconds",
        "headgate_num_records_out_total": "rows",
        "headgate_num_records_in_total": "rows_received",
        "headgate_num_bytes_out_total": "bytes",
        "headgate_num_buffers_out_total": "pages",
        "headgate_num_failed_attempts_total": "failed_attempts",
        "headgate_pool_peak_bytes": "peak_bytes",
        "headgate_kept_file_bytes": "file_bytes",
    }
    for metric, field in numbers.items():
        found[metric].append((name, run.get(field, 0)))
    for (role, task_state), number in _tasks(run).items():
        found["headgate_num_tasks"].append(((*name, role, task_state), number))
    for stage in run.get("stages") or []:
        for time in _TIMES:
            total = f"headgate_accumulate_{time}_time_ms_total"
            found[total].append(((*name, stage["name"]), stage.get(f"{time}_ms", 0)))
        busiest = 1000 * (stage.get("busiest_share") or 0.0)
        found["headgate_busiest_task_ms_per_second"].append(((*name, stage["name"]), busiest))
    for stage_name, parts in shares_of_stages(run).items():
        for time in _TIMES:
            if (share := parts[time]) is not None:
                metric = f"headgate_{time}_time_ms_per_second"
                found[metric].append(((*name, stage_name), 1000 * share))


def _tasks(run: State) -> Counter[tuple[str, str]]:
    """Return the number of tasks for each role and state."""
    tasks = Counter((task["role"], task["state"]) for task in run.get("tasks") or [])
    for more in run.get("more_tasks") or []:
        tasks.update({(more["role"], word): n for word, n in more.get("states", {}).items()})
    for role, side in (("map", "producers"), ("reduce", "consumers")):
        tasks[role, "running"] = run.get(f"{side}_running", 0)  # not all that run are listed
    return +tasks


def _add_stream(found: Samples, stream: State) -> None:
    name = (stream.get("name", ""),)
    checkpoints = stream.get("checkpoints") or []
    pending = sum(one["status"] == "pending" for one in checkpoints)
    found["headgate_num_restarts_total"].append((name, stream.get("restarts", 0)))
    found["headgate_number_of_in_progress_checkpoints"].append((name, pending))
    for operator, counters in (stream.get("dropped") or {}).items():
        for counter, number in counters.items():
            if (metric := _DROPPED.get(counter)) is not None:
                found[metric].append(((*name, operator), number))
    complete = [one for one in checkpoints if one["status"] == "complete"]
    if complete:
        last = complete[-1]
        found["headgate_last_completed_checkpoint_id"].append((name, last["checkpoint"]))
        found["headgate_last_checkpoint_duration_ms"].append((name, last["duration"] or 0))
        found["headgate_last_checkpoint_size_bytes"].append((name, last["bytes"]))
