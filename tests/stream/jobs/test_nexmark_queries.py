"""Each query of Nexmark gives what DuckDB says: in threads, in processes, and after a failure in the middle."""

import ast
import inspect
import re
import statistics
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from benches.nexmark import oracle, queries
from benches.nexmark.events import KINDS, Nexmark, generated, of_files, written
from benches.nexmark.queries import FOLDERS, KEYS, QUERIES
from tests.kit.nexmark import all_events, around_midnight, result_of
from tests.kit.stream_jobs import FailOnce

from headgate._changes import last_changes
from headgate.sink import FileSink

EVENTS = 30_000
OPTIONS = around_midnight(EVENTS)
#: A query for each kind of operator and of source.
IN_PROCESSES = ("q5", "q9", "q15", "q23")
AFTER_A_FAILURE = ("q4", "q5", "q7", "q8", "q10", "q18", "q20")


@pytest.fixture(scope="module")
def tables():
    return all_events(EVENTS, **OPTIONS)


def check(name, nexmark, folder, tables, **options):
    """Run a query, and compare the files of its result."""
    sink = FileSink(folder / "result", partition_by=FOLDERS.get(name, ()))
    query = QUERIES[name](nexmark).sink(sink).start(parallelism=2, **options)
    query.await_termination()
    rows = result_of(name, folder / "result")
    if name in KEYS:
        rows, _ = last_changes(rows, KEYS[name])
    assert oracle.check(name, rows, tables) > 0
    return query


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_says(name, tmp_path, tables):
    check(name, generated(EVENTS, **OPTIONS), tmp_path, tables)


@pytest.mark.parametrize(
    "name",
    [IN_PROCESSES[0], *(pytest.param(name, marks=pytest.mark.soak) for name in IN_PROCESSES[1:])],
)
def test_a_query_gives_the_same_in_processes_and_of_files(name, tmp_path):
    folder = written(tmp_path, EVENTS)
    events = {kind: f"{folder}/ordered/{kind}/*.parquet" for kind in KINDS}
    check(name, of_files(folder), tmp_path, events, workers=2)


@pytest.mark.parametrize("name", AFTER_A_FAILURE)
def test_a_query_gives_the_same_after_a_failure(name, tmp_path, tables):
    nexmark = generated(EVENTS, rate=50_000, splits=2, **OPTIONS)
    rows = {"person": EVENTS, "auction": 450, "bid": 6000}
    failing = Nexmark(
        lambda kind, *options: nexmark._rows(kind, *options).map(
            FailOnce(tmp_path / "failed", rows[kind])
        )
    )
    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": "100ms"}
    query = check(name, failing, tmp_path, tables, **options, restart_delay="0ms")
    assert query.status.restarts == 1
    assert any(checkpoint.status == "complete" for checkpoint in query.status.checkpoints)


def test_files_for_other_engines_have_the_same_events(tmp_path):
    folder = written(tmp_path, 3000)
    for kind, table in all_events(3000, event_rate=10_000).items():
        order = [(name, "ascending") for name in ("dateTime", "extra")]
        for way in ("ordered", "halves"):
            stored = ds.dataset(folder / way / kind).to_table()
            assert stored.sort_by(order).equals(table.sort_by(order)), (kind, way)
    assert written(tmp_path, 3000) == folder


def test_a_wrong_answer_is_named(tables):
    wrong = tables["bid"].select(["auction", "price"]).slice(0, 3)
    with pytest.raises(oracle.WrongAnswerError, match=r"q2: \d+ rows are missing, \d are wrong"):
        oracle.check("q2", wrong, tables)


def test_queries_are_short():
    lines = {name: code_lines(query) for name, query in QUERIES.items()}
    assert max(lines.values()) <= 25, lines
    assert statistics.median(lines.values()) <= 8, lines


def test_the_page_shows_the_queries_as_they_are():
    page = (Path(__file__).parents[3] / "docs" / "nexmark.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?s)```python not run[^\n]*\n(.*?)```", page)
    functions = [node for block in shown for node in ast.parse(block).body]
    assert len(functions) == 6
    for function in functions:
        source = ast.parse(inspect.getsource(getattr(queries, function.name))).body[0]
        source.body.pop(0)  # the docstring
        assert ast.unparse(function) == ast.unparse(source), function.name


def code_lines(function):
    """Return the number of lines of a function without its docstring and blank lines."""
    source = inspect.getsource(function)
    body = ast.parse(source).body[0]
    docstring = body.body[0]
    text = source.splitlines()
    code = text[: docstring.lineno - 1] + text[docstring.end_lineno :]
    return sum(1 for line in code if line.strip())
