"""The benches run and print their ratios. No test checks the measured values."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from benches import flink_cluster, harness, sweep
from benches.__main__ import NAMES
from benches.calls.client import Client
from tests.kit.waiting import wait_until

from headgate.testing import Service

ROOT = Path(__file__).resolve().parents[3]
#: Seconds after which a bench counts as hanging, on a busy machine. The test may take longer.
HANGS = 290
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize(
    ("bench", "ratios"),
    [
        ("overhead", ["overhead_emit", "overhead_next"]),
        ("scatter", ["scatter", "scatter_string", "scatter_2000"]),
        ("loopback", ["loopback_raw", "loopback_flight", "loopback_small"]),
        ("tls", ["tls", "tls_small"]),
        ("samehost", ["samehost_untouched", "samehost_summed", "samehost_latency"]),
        ("channels", ["channels", "channels_blocked"]),
        ("channels --seconds 1", ["channels_long"]),
        ("broadcast", ["broadcast"]),
        ("kept", ["kept_pipelined", "kept_pipelined_summed", "kept_pipelined_keyed"]),
        ("memory", ["memory"]),
        ("lost", ["lost_writes", "lost_idle", "lost_consumer"]),
        ("keyed", ["keyed_handrolled", "keyed_flink"][: 1 + bool(flink_cluster.libraries())]),
        # These benches also compare the results of all contestants.
        (
            "nexmark --parts comparison --queries q5,q17 --peers flink",
            ["nexmark_least", "nexmark_median"] if flink_cluster.libraries() else [],
        ),
        (
            "nexmark --parts small_batches,checkpoints --peers= --queries q17",
            ["nexmark_small_batches", "nexmark_checkpoints"],
        ),
        ("nexmark --parts latency --queries q5", ["nexmark_p99_q5"]),
        ("nexmark --parts recovery", ["nexmark_recovery"]),
        (
            "calls --parts limit rate memory overhead",
            [
                "calls_limit",
                "calls_rate",
                "calls_memory",
                "calls_overhead_batches",
                "calls_overhead_rows",
            ],
        ),
        ("calls --parts paid", ["calls_paid", "calls_paid_exchanges"]),
        ("skew", ["skew"]),
        ("broadcast_join", ["broadcast_join", "broadcast_measured", "broadcast_join_jvm"]),
        ("spark_kept --only wide_auto", ["wide_auto"]),
        ("jobs --job invoices", ["jobs_invoices", "jobs_invoices_spark_reads"]),
        ("pipeline", ["pipeline", "pipeline_sql"]),
        ("chain", ["chain"]),
        ("spark_kept --only spark_binary", ["spark_binary"]),
        ("spark_memory", ["spark_memory"]),
    ],
)
def test_a_bench_runs_and_names_its_ratios(bench, ratios, tmp_path):
    command = [sys.executable, "-m", "benches", *bench.split(), "--quick", "--turns", "1"]
    environ = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("TRIED")]
    assert [line[1] for line in lines] == ratios
    assert all(line[3] == "goal" for line in lines)


def test_calls_of_a_bench_whose_task_nobody_keeps_are_not_collected():
    """PyFlink keeps no task, and a transport refers to its reader weakly."""
    loop, answers = asyncio.new_event_loop(), []
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with Service(latency=0.3) as service:
        client = Client(service.url)

        async def ask(number):
            answers.append(await client.ask(number))

        for number in range(8):
            asyncio.run_coroutine_threadsafe(ask(number), loop)
        wait_until(lambda: len(client._busy) == 8, "all calls wait for their answer")
        gc.collect()
        wait_until(lambda: len(answers) == 8, "all calls have an answer", 10)
        asyncio.run_coroutine_threadsafe(client.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert sorted(answers) == list(range(8))


def test_the_sweep_measures_every_point():
    command = [sys.executable, "-m", "benches", "sweep", "--quick", "--turns", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert done.returncode == 0, done.stderr
    rates = [line for line in done.stdout.splitlines() if line.endswith(" MB/s")]
    points = 4 * len(sweep.BATCHES) + 2 * len(sweep.CHANNELS) + 3 * len(sweep.SUBPARTITIONS)
    assert len(rates) == points


def test_a_ratio_is_the_median_of_theirs_over_ours_against_the_best_rival(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    seconds = {
        "ours": [9.0, 1.0, 2.0, 1.0],
        "slow": [9.0, 8.0, 8.0, 8.0],
        "fast": [9.0, 3.0, 4.0, 5.0],
    }
    contestants = {name: iter(values).__next__ for name, values in seconds.items()}
    ratio = harness.Ratio("x", ("slow", "fast"), "ours", goal=2.0)
    harness.compare("b", "what", contestants, [ratio], turns=3, size=10**6)
    # The ratios are 3/1, 4/2 and 5/1; the first turn is not counted.
    assert capsys.readouterr().out.splitlines()[-1] == "RATIO x 3.00 goal 2"
    assert '"over": "fast"' in (tmp_path / "results" / "b.json").read_text(encoding="utf-8")


def test_an_unknown_bench_is_refused():
    command = [sys.executable, "-m", "benches", "nothing"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert ", ".join(NAMES) in done.stderr


def test_calls_that_came_too_early_count_for_no_limit():
    from benches.calls.limits import counted

    outcomes = ["answered"] * 5 + ["refused"] * 4 + ["limited"] * 3 + ["failed"] * 2
    assert counted(pa.chunked_array([outcomes])) == 11
    assert counted(pa.chunked_array([["answered"]])) == 1
