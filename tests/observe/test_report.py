"""The report: one file that needs nothing else, whatever the texts in it are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.runs import calls

from headgate.__main__ import main
from headgate.errors import OptionError, PackageNotFound
from headgate.observe import _extras
from headgate.observe.edges import folded, matrix
from headgate.observe.numbers import share
from headgate.observe.record import CheckpointStats, Failure, Run, Stage, Task, Verdict, Worker
from headgate.observe.report.drawing import MOST_BARS, MOST_ROWS, WIDTH, drawn
from headgate.observe.report.files import read, write
from headgate.observe.report.page import embedded, html
from headgate.observe.state import state_of

TIMES = {"input_ms": 1000, "function_ms": 2000, "emit_ms": 500, "blocked_ms": 500}


def task(role: str, number: int, **about: Any) -> dict[str, Any]:
    """Return a task."""
    times = TIMES if role == "map" else {**TIMES, "emit_ms": 0}
    done = Task(role, number, "done", 10, 100, 64, **times, host="node", attempt=number)
    return {**asdict(done), "started_ms": 0, "ended_ms": 4000, **about}


def stage(name: str, *inputs: str) -> dict[str, Any]:
    """Return a stage."""
    return {**asdict(Stage(name, 2, 100, 300, 0, 1, 0.75)), "inputs": list(inputs)}


def run(**about: Any) -> dict[str, Any]:
    """Return a run with two producers and two consumers."""
    names = ("source", "map", "exchange", "reduce", "sink")
    verdict = Verdict("skew", "reduce", 1, 0.9, "reduce 1 is busy 90 %", "split the hot key")
    whole = Run(
        mode="kept",
        name="ab12cd",
        number=1,
        state="done",
        seconds=5.0,
        started_at=1_790_000_000.5,
        rows=20,
        bytes=200,
        pages=3,
        rows_received=20,
        peak_bytes=64,
        producers=2,
        consumers=2,
        consumers_total=2,
        verdict=verdict,
        options={"memory": {"value": "64m", "source": "default"}},
        versions={"headgate": "1", "python": "3.11"},
        edges=matrix((n, *folded([10 * n, 5])) for n in (0, 1)),
        history=(
            {"at": 1.0, "seconds": 1.0, "rows": 5, "bytes": 50, "stages": {}},
            {"at": 2.0, "seconds": 1.0, "rows": 15, "bytes": 150, "stages": {}},
        ),
    )
    return {
        **whole.plain(),
        "stages": [stage(name, *names[n - 1 : n]) for n, name in enumerate(names)],
        "tasks": [task(role, n) for role in ("map", "reduce") for n in (0, 1)],
        **about,
    }


def stream(**about: Any) -> dict[str, Any]:
    """Return a streaming job."""
    checkpoint = CheckpointStats(7, 1_790_000_000_000, None, "complete", 30, 500, 1, 2, 3, 4)
    job = Run(
        mode="stream",
        name="orders",
        number=1,
        state="running",
        seconds=9.5,
        started_at=1_790_000_000.5,
        rows=5,
        tasks=(Task("map", 0, rows=5, input_ms=9000, function_ms=97, blocked_ms=3, started_ms=0),),
        stages=(Stage("map", 1, 9000, 97, 3, 0, 0.01),),
        checkpoints=(checkpoint,),
        workers=(Worker(0, "node", 7),),
    )
    return {**job.plain(), **about}


def state(*runs: dict[str, Any]) -> dict[str, Any]:
    """Return a state."""
    return state_of(list(runs), 1_790_000_010.0)


VOID = {"meta", "br", "hr", "img", "input", "link", "source", "embed"}
HOSTILE = (
    "</script></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'`&\u2028\u2029{{ 7 }}"
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Page(HTMLParser):
    """The elements of a page; every one must be closed in its order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts, self.into = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), list(self.open)))
        self.texts.append("")
        if tag not in VOID:
            self.open.append(tag)
            self.into.append(len(self.texts) - 1)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), list(self.open)))
        self.texts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.into.pop()

    def handle_data(self, data):
        # Text goes to the innermost element that is open.
        if self.into:
            self.texts[self.into[-1]] += data

    def all(self, tag):
        return [attrs for name, attrs, _ in self.elements if name == tag]

    def text_of(self, tag):
        pairs = zip(self.elements, self.texts, strict=True)
        return [text for (name, _, _), text in pairs if name == tag]


def full_state():
    return state(
        run(
            failures=[
                {
                    "role": "map",
                    "task": 3,
                    "attempt": 9,
                    "host": "b",
                    "error": "",
                    "summary": "lost",
                }
            ]
        ),
        run(number=2, state="failed", error="HG-6001", error_summary="map raised", verdict=None),
        run(number=3, edges=matrix((n, *folded([n * m for m in range(70)])) for n in range(70))),
        stream(),
    )


def test_hostile_texts_stay_texts():
    words = {
        "error": HOSTILE,
        "error_summary": HOSTILE,
        "state": HOSTILE,
        "name": HOSTILE,
        "mode": HOSTILE,
        "stages": [stage(HOSTILE)],
        "tasks": [task("map", 0, host=HOSTILE, state=HOSTILE), task("reduce", 0, host=HOSTILE)],
        "verdict": {"text": HOSTILE, "advice": HOSTILE},
        "options": {HOSTILE: {"value": HOSTILE, "source": HOSTILE}},
        "versions": {HOSTILE: HOSTILE},
    }
    checkpoint = {**stream()["checkpoints"][0], "reason": HOSTILE, "status": HOSTILE}
    cause = {"role": HOSTILE, "task": 1, "attempt": 1, "host": HOSTILE, "error": "", "summary": ""}
    job = stream(
        name=HOSTILE,
        state=HOSTILE,
        error=HOSTILE,
        verdict={"text": HOSTILE, "advice": HOSTILE},
        checkpoints=[checkpoint],
        failures=[cause],
        notices=[HOSTILE],
        calls=[asdict(calls(HOSTILE, errors={HOSTILE: 1}, advice=HOSTILE))],
        tasks=[task(HOSTILE, 0)],
    )
    told = {**state(run(**words), job), "headgate": HOSTILE}
    text = html(told)
    page, plain = Page(text), Page(html(state(run(), stream())))
    assert len(page.all("script")) == 2
    assert {name for name, _, _ in page.elements} <= {name for name, _, _ in plain.elements} | {"p"}
    assert not any(name.startswith("on") for _, attrs, _ in page.elements for name in attrs)
    assert page.text_of("td").count(HOSTILE) >= 8
    assert "{{ 7 }}" in text
    data, _ = page.text_of("script")
    assert json.loads(data) == told
    assert "\u2028" not in embedded(told)


def test_the_page_needs_nothing_from_outside_and_runs_only_its_own_script():
    text = html(full_state())
    page = Page(text)
    for _, attrs, _ in page.elements:
        assert not {"src", "srcset", "action", "data"} & set(attrs)
        assert attrs.get("href", "#").startswith("#")
    assert re.findall(r"\w+://|url\(|@import|fetch\(|XMLHttpRequest|WebSocket", text) == []
    (policy,) = [m["content"] for m in page.all("meta") if "http-equiv" in m]
    script = page.text_of("script")[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy


def test_a_screen_reader_finds_its_way():
    page = Page(html(full_state()))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("table")) == len(page.all("caption")) > 10
    assert all(th.get("scope") in {"row", "col"} for th in page.all("th"))
    assert all(svg.get("role") == "img" and svg["aria-label"] for svg in page.all("svg"))
    ids = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)
    assert {s["aria-labelledby"] for s in page.all("section")} <= set(ids)
    scrolled = [d for d in page.all("div") if d.get("class") == "scrolls"]
    assert all(d["tabindex"] == "0" and d["role"] == "region" and d["aria-label"] for d in scrolled)
    assert len(page.all("h1")) == 1


def test_the_page_tells_what_the_runs_did():
    text = html(full_state())
    for words in (
        "exchange ab12, run 2: failed",
        "<strong>HG-6001</strong> map raised",
        "Slowest: reduce 1 is busy 90 %.",
        "May help: split the hot key.",
        "No stage is clearly the slowest.",
        "<caption>Bytes from each producer (row) to each consumer (column)</caption>",
        "<li>map 3 on b failed: lost</li>",
        "Neighbours are added up.",
        "2 consumers read 10 rows in the mean; the largest 1.0 times as many.",
        "streaming job orders, attempt 1: running",
        "<td>complete</td>",
        '<th scope="row">memory</th><td>64m</td><td>default</td>',
    ):
        assert words in text, words


def test_an_empty_record_and_runs_of_which_little_is_known():
    assert "No run of an exchange and no streaming job is in the record" in html(state())
    bare = run(
        tasks=[],
        stages=[],
        verdict=None,
        options={},
        versions={},
        edges=None,
        history=[],
        started_at=0.0,
    )
    assert Page(html(state(bare))).all("table") == []
    unknown = {"started_ms": None, "ended_ms": None, "attempt": None, "host": ""}
    none = dict.fromkeys(("input_ms", "function_ms", "emit_ms", "blocked_ms", "rows"), 0)
    some = run(mode="kept", file_bytes=9, made_again=1, tasks=[task("map", 0, **unknown, **none)])
    text = html(state(some))
    assert "1 producers ran again" in text
    assert "in the mean" not in text


def test_a_run_of_many_tasks_is_folded_to_the_worst_and_the_sums():
    tasks = [task("map", n, rows=1, function_ms=n) for n in range(400)]
    tasks[5].update(state="running", **dict.fromkeys((*TIMES, "rows"), 0))
    tasks += [task("reduce", n) for n in range(112)]
    more = [{**task("map", 0), "tasks": 9_488, "rows": 9_488}]
    wide = run(tasks=tasks, more_tasks=more)
    told = drawn(wide, 1)
    assert told["all_tasks"] == 10_000
    assert len(told["tasks"]) == MOST_ROWS
    assert len(told["timeline"]["bars"]) == MOST_BARS
    assert {bar["role"] for bar in told["timeline"]["bars"]} == {"map", "reduce"}
    assert 5 in {t["task"] for t in told["tasks"] if t["role"] == "map"}
    maps = sum(t["rows"] or 0 for t in told["tasks"] if t["role"] == "map")
    (others,) = [o for o in told["others"] if o["role"] == "map"]
    assert (maps + others["rows"], others["tasks"]) == (9_887, 10_000 - 112 - 64)
    # Half of it is the state itself.
    assert len(html(state(wide))) < 300_000


def test_attempts_that_failed_are_listed_with_their_causes():
    cause = {"role": "map", "task": 3, "attempt": 9, "host": "<b>", "error": "", "summary": "<i>"}
    assert "<li>map 3 on &lt;b&gt; failed: &lt;i&gt;</li>" in html(state(run(failures=[cause])))


def test_a_task_that_runs_and_has_told_nothing_has_a_bar_and_no_numbers():
    silent = {**dict.fromkeys((*TIMES, "rows", "bytes", "peak_bytes"), 0), "state": "running"}
    told = [task("reduce", 0), task("reduce", 1, **silent, started_ms=1000, ended_ms=None)]
    about = run(state="running", tasks=told)
    found = drawn(about, 1)
    assert found["skew"]["number"] == 1, "it is no consumer with few rows"
    bar = found["timeline"]["bars"][1]
    assert (bar["x"], bar["width"], bar["parts"]) == (WIDTH / 5, WIDTH * 4 / 5, [])
    row = html(state(about)).split("<td>running</td>")[1].split("</tr>")[0]
    assert re.findall(">([^<]+)</td>", row) == [*["-"] * 7, "1.0 s", "-"]


def test_a_streaming_job_of_many_tasks_lists_some_of_them_and_the_sums_of_the_others():
    page = html(state(stream(tasks=[task("clean", n) for n in range(400)])))
    assert f"the {MOST_ROWS} that worked or waited for downstream the longest" in page
    assert page.count("<td>clean</td>") == MOST_ROWS
    assert f"{400 - MOST_ROWS} others" in page


def test_a_state_of_all_runs_at_their_bounds_is_a_page_of_bounded_size():
    edges = matrix((n, *folded([1 << 40] * 64)) for n in range(64))
    tasks = [task("map", n, host="x" * 60) for n in range(512)]
    one = len(html(state(run(tasks=tasks, edges=edges))))
    two = len(html(state(*[run(tasks=tasks, edges=edges)] * 2)))
    assert 32 * (two - one) < 16_000_000


MS = st.integers(0, 100_000)
TASKS = st.builds(
    lambda role, started, ended, *times: task(
        role,
        0,
        started_ms=started,
        ended_ms=ended,
        **dict(zip(("input_ms", "function_ms", "blocked_ms"), times, strict=True)),
    ),
    st.sampled_from(["map", "reduce"]),
    st.none() | MS,
    st.none() | MS,
    MS,
    MS,
    MS,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(TASKS, min_size=1, max_size=20), st.floats(0, 200))
def test_bars_lie_within_the_timeline_and_parts_within_their_bar(tasks, seconds):
    line = drawn(run(tasks=tasks, seconds=seconds), 1)["timeline"]
    for bar in line["bars"]:
        assert bar["x"] >= 0
        parts = bar["parts"]
        assert sum(part["width"] for part in parts) <= bar["width"] + 0.5
        assert bar["x"] + bar["width"] <= WIDTH + 0.2
        for part in parts:
            assert bar["x"] - 0.2 <= part["x"] <= bar["x"] + bar["width"] + 0.2
        ends = [part["x"] + part["width"] for part in parts]
        assert all(end <= after["x"] + 0.2 for end, after in zip(ends, parts[1:], strict=False)), (
            "no part covers another"
        )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 1 << 50), min_size=9, max_size=9), min_size=1, max_size=12))
def test_a_drawn_matrix_has_each_edge_once_in_the_shade_of_its_bytes(rows):
    told = drawn(run(edges=matrix((n, *folded(row)) for n, row in enumerate(rows))), 1)["edges"]
    assert not told["as_numbers"]
    seen = {}
    for path in told["paths"]:
        for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", path["d"]):
            assert seen.setdefault((int(y), int(x)), path) is path
            assert path["from"] * 0.999 <= rows[int(y)][int(x)] <= path["to"] * 1.001
    assert set(seen) == {(y, x) for y, row in enumerate(rows) for x, n in enumerate(row) if n}
    assert told["total"] == sum(map(sum, rows)) == sum(told["columns"])


def test_skew_is_told_by_shares_and_the_mean():
    tasks = [task("reduce", n, rows=rows) for n, rows in enumerate((100, 700, 100, 100))]
    told = drawn(run(tasks=tasks), 1)["skew"]
    assert (told["number"], told["mean"], told["ratio"]) == (4, 250, 2.8)
    assert [(t["task"], t["share"], t["bar"]) for t in told["largest"][:2]] == [
        (1, 0.7, 1.0),
        (0, 0.1, 1 / 7),
    ]
    assert (share(0.004), share(0), share(0.7)) == ("< 1 %", "0 %", "70 %")


def test_a_file_is_replaced_at_once_and_nothing_else_is_left(tmp_path):
    place = tmp_path / "report.html"
    place.write_text("old")
    assert write(state(), place) == place
    assert place.read_text().startswith("<!DOCTYPE html>")
    assert names(tmp_path) == ["report.html"]
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OSError, match=r"folder\.json"):
        write(state(), tmp_path / "folder.json")
    assert names(tmp_path) == ["folder.json", "report.html"]


def test_the_file_behind_a_link_stays(tmp_path):
    behind = tmp_path / "precious"
    behind.write_text("mine")
    (tmp_path / "run.json").symlink_to(behind)
    write(state(), tmp_path / "run.json")
    assert behind.read_text() == "mine"
    assert not (tmp_path / "run.json").is_symlink()


def test_the_suffix_chooses_the_form(tmp_path, monkeypatch):
    told = full_state()
    write(told, tmp_path / "run.JSON")
    assert read(tmp_path / "run.JSON") == told
    with pytest.raises(OptionError, match="neither by its suffix"):
        write(told, tmp_path / "report.pdf")
    monkeypatch.chdir(tmp_path)
    assert write(told, "a.htm") == tmp_path / "a.htm"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>", "it has no list of runs"),
        ("\xff", "it has no list of runs"),
        ("[]", "it has no list of runs"),
        ('{"runs": 5}', "it has no list of runs"),
        ('{"runs": [], "headgate": "9", "schema_version": 99}', "it is of version 99"),
    ],
)
def test_another_file_is_refused(tmp_path, text, why):
    (tmp_path / "run.json").write_text(text, "latin-1")
    with pytest.raises(OptionError, match=why):
        read(tmp_path / "run.json")


def test_the_command_makes_the_page_of_a_json_file(tmp_path, capsys):
    told = full_state()
    write(told, tmp_path / "run.json")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run.json"), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text(encoding="utf-8") == html(told)
    assert main(["report", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main(["report", str(tmp_path / "bad.json")]) == 1
    assert "is no state of runs" in capsys.readouterr().err


def test_without_jinja2_the_error_names_the_extra_and_json_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(_extras, "find_spec", lambda _: None)
    with pytest.raises(PackageNotFound, match=r"headgate\[ui\]"):
        write(state(), tmp_path / "report.html")
    write(state(), tmp_path / "run.json")
    assert names(tmp_path) == ["run.json"]


def test_a_streaming_job_tells_of_its_checkpoints_and_causes():
    job = Run(
        mode="stream",
        name="orders",
        number=2,
        state="restarting",
        error="HG-6001",
        error_summary="clean raised <ValueError>",
        failures=(Failure(1, "HG-3001", "worker 0 was <lost>"),),
        verdict=Verdict("operator-busy", "score", 0, 0.9, "clean waits for score", "try more"),
        checkpoints=(
            CheckpointStats(7, 1_790_000_000_000, "s3://user:word@host/folder"),
            CheckpointStats(8, 1_790_000_001_000, None, "failed", 12, reason="a disk is full"),
        ),
        notices=("windows: 7 rows came too late",),
        calls=(calls("embed", rate=20.0, rate_asked=50.0), calls("score")),
    )
    text = html(state(job.plain()))
    for words in (
        "streaming job orders, attempt 2: restarting",
        "clean raised &lt;ValueError&gt;",
        "attempt 1 ended: [HG-3001] worker 0 was &lt;lost&gt;",
        "windows: 7 rows came too late",
        "Slowest: clean waits for score.",
        "7 (savepoint)",
        "<td>a disk is full</td>",
        '<th scope="row">embed</th><td>service</td><td class="number">63.5</td><td class="number">64</td>',
        '<td class="number">20 of 50/s</td><td class="number">202 ms</td>',
        "<td>TimeoutError 12</td>",
        "<li>score waits for its service. May help: raise in_flight=.</li>",
    ):
        assert words in text, words
    assert "word@host" not in text
    assert "word@host" not in job.to_json()
    assert len(Page(text).all("section")) == 1
