"""The programs of docs/calls-cookbook.md: what they print, and what a killed worker costs each of their jobs."""

import os
import re
import signal
import sys
import types
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from scripts.page_blocks import ROOT, Block, blocks, wrong_with
from tests.kit.waiting import wait_until

from headgate.testing import Service

pytest.importorskip("httpx", reason="scripts/programs.sh installs it")
pytest.importorskip("py3langid", reason="scripts/programs.sh installs it")

PAGE = ROOT / "docs/calls-cookbook.md"
#: By title, the two blocks of each program: its job, and a run of it.
PROGRAMS = {
    section.partition("\n")[0]: [block for block in blocks(section) if block.runs]
    for section in re.split(r"(?m)^## ", PAGE.read_text(encoding="utf-8"))[1:]
}
EMBED, JUDGE, CRAWL, CLASSIFY, LOOK_UP = PROGRAMS
PARALLELISM = 2


class Answers:
    """Makes the answers of a service, and notes the content of each call in a file."""

    def __init__(self, folder, answer):
        self.file, self.answer = folder / "answers", answer

    def __call__(self, request):
        with self.file.open("a") as file:
            file.write(f"{request.body.decode()}\n")
        return self.answer(request)

    def contents(self):
        return self.file.read_text().splitlines() if self.file.exists() else []


@pytest.fixture(name="job_of")
def of_page(tmp_path, monkeypatch):
    """Return a function that returns the job of a program; files are below a new folder."""
    monkeypatch.chdir(tmp_path)
    modules = []

    def job_of(title):
        module = types.ModuleType(f"calls_cookbook_{len(modules)}")
        modules.append(module)
        # Workers cannot import it, so its functions and classes are sent by value.
        sys.modules[module.__name__] = module
        cloudpickle.register_pickle_by_value(module)
        exec(PROGRAMS[title][0].code, module.__dict__)
        return module.job

    yield job_of
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]


def write(folder, **columns):
    Path(folder).mkdir()
    pq.write_table(pa.table(columns), f"{folder}/1.parquet")


def run_with_a_kill(job, done, **options):
    """Run a job in two processes, and kill one of them when something is done."""
    with job.start(
        checkpoint="checkpoints", interval=0.2, parallelism=PARALLELISM, workers=2, **options
    ) as query:
        wait_until(done, "a half of the calls")
        os.kill(query._master._pool.processes[1].pid, signal.SIGKILL)
        assert query.await_termination(200)
        assert query.status.restarts == 1


def repeats(contents):
    return sum(number - 1 for number in Counter(contents).values())


def embedding(request):
    return [[len(text), 1] for text in request.json()]


def texts_of(calls):
    return [text for call in calls for text in re.findall(r"\bt\d+\b", call)]


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_prints_what_the_page_says(title):
    assert len(PROGRAMS[title]) == 2
    assert all(len(line) <= 100 for block in PROGRAMS[title] for line in block.code.splitlines())
    assert wrong_with(PROGRAMS[title], Path(sys.executable)) == []


def test_vectors_may_go_into_a_delta_table():
    (line,) = re.findall(r'`(DeltaSink\("vectors", .*)`, of\n', PAGE.read_text(encoding="utf-8"))
    job, run = PROGRAMS[EMBED]
    code = job.code.replace('FileSink("vectors", mode="append")', line)
    assert code != job.code
    delta = "from deltalake import DeltaTable\n\nfrom headgate.sink.delta import DeltaSink\n\n"
    read = run.code.replace('pq.read_table("vectors")', 'DeltaTable("vectors").to_pyarrow_table()')
    output = run.output.replace("8 chunks", "5 chunks")
    assert output != run.output
    changed = [
        Block(job.line, "python", "", delta + code),
        Block(run.line, "python", "", read, output),
    ]
    assert wrong_with(changed, Path(sys.executable)) == []


def test_a_killed_worker_costs_texts_in_the_air(tmp_path, job_of):
    # Pairs of documents share their texts, and so do the paragraphs of a document.
    texts = [
        "\n\n".join(f"t{doc // 2 * 10 + part % 10}" for part in range(12)) for doc in range(400)
    ]
    write("docs", doc=[f"d{doc}" for doc in range(400)], text=texts)
    answers = Answers(tmp_path, embedding)
    with Service(answers, latency="100ms") as service:
        run_with_a_kill(
            job_of(EMBED)(service.url), lambda: len(texts_of(answers.contents())) > 1000
        )
    vectors = pq.read_table("vectors")
    chunks = Counter(
        (f"d{doc}", part, chunk)
        for doc, text in enumerate(texts)
        for part, chunk in enumerate(text.split("\n\n"))
    )
    assert Counter(zip(*(vectors[at].to_pylist() for at in range(3)), strict=True)) == chunks
    assert all(row["vector"] == [len(row["text"]), 1] for row in vectors.to_pylist())
    paid = texts_of(answers.contents())
    assert set(paid) == {f"t{at}" for at in range(2000)}
    assert repeats(paid) <= PARALLELISM * 8 * 16


def judgement(request):
    first, second = request.json()
    return (422, "no") if "x9" in first.split() else first.split()[-1] == second.split()[-1]


def test_a_killed_worker_costs_judgements_in_the_air(tmp_path, job_of):
    pairs = 1000
    text = [
        f"{' '.join(f'w{at // 2 * 50 + n}' for n in range(40))} x{at // 2 % 100}"
        for at in range(2 * pairs)
    ]
    write("texts", id=range(2 * pairs), text=text)
    answers = Answers(tmp_path, judgement)
    with Service(answers, latency="100ms") as service:
        run_with_a_kill(job_of(JUDGE)(service.url), lambda: len(answers.contents()) > pairs // 2)
    judged, errors = (pq.read_table(folder) for folder in ("judged", "errors"))
    refused = {(at, at + 1) for at in range(18, 2 * pairs, 200)}
    assert Counter(
        zip(errors["id"].to_pylist(), errors["id_2"].to_pylist(), strict=True)
    ) == Counter(refused)
    assert Counter(
        zip(judged["id"].to_pylist(), judged["id_2"].to_pylist(), strict=True)
    ) == Counter({(at, at + 1) for at in range(0, 2 * pairs, 2)} - refused)
    assert set(judged["same"].to_pylist()) == {True}
    # Errors are not remembered.
    assert repeats(answers.contents()) <= PARALLELISM * 64 + len(refused)


def test_a_killed_worker_makes_no_burst_and_loses_no_page(job_of):
    hosts, pages = 30, 20
    host = [f"{number % hosts}.example" for number in range(hosts * pages)]
    url = [f"http://{name}/{number // hosts}" for number, name in enumerate(host)]
    write("urls", host=host, url=url)
    with Service(lambda request: request.path, key="Host") as service:
        run_with_a_kill(
            job_of(CRAWL)(service.url), lambda: service.calls().num_rows > hosts * pages // 2
        )
        calls = service.calls()
    rows = pq.read_table("pages").to_pylist()
    assert Counter(row["url"] for row in rows) == Counter(url)
    assert all(row["body"].decode() == row["url"] for row in rows)
    for name in set(host):
        at = [call["at"].timestamp() for call in calls.to_pylist() if call["key"] == name]
        assert len(at) >= pages
        # Ten a second and 0.7 s of it; calls may reach the service later than they began.
        assert len(at) <= 10 * (at[-1] - at[0] + 0.5) + 7


def test_a_killed_worker_loses_no_label(job_of):
    texts = ["Where is the tea?", "Wo ist der Tee?", "Où est le thé ?"] * 4000
    write("reviews", id=range(len(texts)), text=texts)
    run_with_a_kill(job_of(CLASSIFY)(), lambda: list(Path("labelled").glob("*.parquet")))
    rows = pq.read_table("labelled").sort_by("id")
    assert rows["id"].to_pylist() == [*range(len(texts))]
    assert rows["language"].to_pylist() == ["en", "de", "fr"] * 4000


def test_a_killed_worker_costs_no_order_that_has_a_name(job_of):
    with Service(lambda request: {"country": request.path[-1]}, idempotent=True) as service:
        run_with_a_kill(job_of(LOOK_UP)(service.url), lambda: service.calls().num_rows > 100)
    rows = pq.read_table("enriched").sort_by("order").to_pylist()
    assert [row["order"] for row in rows] == [*range(200)]
    assert all(row["country"] == str(row["customer"])[-1] for row in rows)
    assert set(service.ledger()["paid"].to_pylist()) == {1}
    assert service.ledger().num_rows == 200
