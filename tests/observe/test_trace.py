"""The trace of native events: its option, its lines, and the errors, reports and findings that show it."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from headgate import _options
from headgate.control.cause import Cause
from headgate.errors import OptionError, PeerLostError
from headgate.observe.report.page import html
from headgate.observe.state import state_of
from headgate.spark.doctor.findings import Finding, Report

#: Reads rows from a peer, keeps rows in a file, and reads that file when it is gone. Prints the lines after the first
#: step, the notes of the error of the last one, the lines at the end, and those of a forked child.
PROGRAM = """
import json, os, sys, tempfile
import headgate as hg
from headgate.observe.trace import lines

class Two:
    def __init__(self, **options):
        named = dict(secret=b"s" * 32, exchange_id=b"e" * 16, memory="4m", segment_size="4k", same_host_link="off")
        self.producer = hg.ShuffleEnvironment(**named, **options)
        self.consumer = hg.ShuffleEnvironment(**named, **options)

two = Two()
partition = two.producer.create_result_partition(1)
gate = two.consumer.create_input_gate([partition.address(0)])
with hg.RecordWriter(partition, serializer="bytes") as writer:
    for number in range(50):
        writer.emit(b"x" * 1000)
    writer.finish()
    assert sum(len(one) for one in hg.RecordReader(gate, serializer="bytes")) > 0
gate.close()
print(json.dumps(lines(1000)))

folder = tempfile.mkdtemp()
partition = two.producer.create_result_partition(1, kind="blocking")
with hg.RecordWriter(partition, serializer="bytes") as writer:
    writer.emit(b"y" * 100_000)
    writer.finish()
(kept,) = partition.keep(os.path.join(folder, "kept"), inline_limit=0)
os.unlink(kept.file)
gate = two.consumer.create_input_gate(sealed=False)
gate.add_kept_channel(kept)
gate.seal()
try:
    list(hg.RecordReader(gate, serializer="bytes"))
except hg.HeadgateError as error:
    print(json.dumps(getattr(error, "__notes__", [])))
print(json.dumps(lines(1000)))
two.consumer.close()
two.producer.close()
sys.stdout.flush()
if os.fork() == 0:
    print(json.dumps(lines(1000)), flush=True)
    os._exit(0)
os.wait()
"""


def traced(variables):
    """Run the program; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def variables(monkeypatch):
    """Return a function that makes the environment variables of a process with a trace, if one is named."""

    def make(trace):
        monkeypatch.delenv("HEADGATE_TRACE", raising=False)
        return {**os.environ, **({"HEADGATE_TRACE": trace} if trace else {})}

    return make


def test_all_kinds_are_recorded_in_order(variables):
    exchanged, notes, at_end, in_child = traced(variables("net,gate,kept"))
    text = "\n".join(exchanged)
    for part in (
        "dialed",
        "accepted",
        "opened over TCP",
        "got ",
        "granted ",
        "blocked",
        "unblocked",
    ):
        assert part in text, part
    assert text.index("dialed") < text.index("opened over TCP")
    times = [line[:23] for line in exchanged]
    assert times == sorted(times)
    text = "\n".join(at_end)
    for part in (" kept ", "pages of ", "/kept: complete", "cannot be read: "):
        assert part in text, part
    (note,) = notes
    assert note.startswith("trace (UTC), the newest event last:\n")
    assert "cannot be read" in note
    assert in_child == ["no event of net, gate, kept"]


def test_a_kind_is_recorded_without_the_others(variables):
    exchanged, _, at_end, _ = traced(variables("gate"))
    assert {line.split()[2] for line in (*exchanged, *at_end)} == {"gate"}
    exchanged, notes, at_end, _ = traced(variables("kept"))
    assert exchanged == ["no event of kept"]
    assert {line.split()[2] for line in at_end} == {"kept"}
    assert len(notes) == 1


def test_nothing_is_recorded_unless_it_is_asked_for(variables):
    assert traced(variables("")) == [[], [], [], []]
    assert traced(variables("off")) == [[], [], [], []]


@pytest.mark.parametrize(
    ("option", "parsed"),
    [("off", "off"), ("net", "net"), ("kept,net", "net,kept"), (" gate , kept", "gate,kept")],
)
def test_kinds_are_named_in_any_order(option, parsed):
    assert _options.resolve("environment", {}, {}, {"HEADGATE_TRACE": option})["trace"] == parsed
    assert _options.resolve("exchange", {"trace": option}, {}, {})["trace"] == parsed


@pytest.mark.parametrize("option", ["nett", "net,nett", "off,net", "", "net,,gate", "NET"])
def test_another_name_is_refused(option):
    with pytest.raises(OptionError) as raised:
        _options.resolve("environment", {}, {}, {"HEADGATE_TRACE": option})
    text = str(raised.value)
    assert "no list of net, gate, kept" in text
    assert 'trace takes "off", or some of net, gate, kept with commas between them' in text
    assert "(HEADGATE_TRACE)" in text


def test_a_near_name_is_told():
    with pytest.raises(OptionError) as raised:
        _options.resolve("environment", {"trace": "nett"}, {}, {})
    assert 'trace="net"' in raised.value.remedy


def test_a_cause_that_travels_has_the_trace():
    error = PeerLostError("the peer is lost").with_trace(["12:00:00 net  connection 3 lost"])
    error.add_note("something else")
    cause = Cause.of(pickle.loads(pickle.dumps(error)))
    assert cause.text == error.trace_text
    again = Cause.of(cause.error())
    assert again.text.count("connection 3 lost") == 1
    assert Cause.of(PeerLostError("without one")).text == ""


def test_the_report_has_the_trace_of_its_process(monkeypatch):
    assert "Trace" not in html(state_of([]))
    monkeypatch.setattr("headgate.observe.state.lines", lambda _: ["12:00:00 net  <b>lost</b>"])
    page = html(state_of([]))
    assert "12:00:00 net  &lt;b&gt;lost&lt;/b&gt;" in page
    assert state_of([])["trace"] == ["12:00:00 net  <b>lost</b>"]


def test_the_doctor_prints_the_traces():
    finding = Finding("HG-1201", "ok", "executors", "1 of 1 executors answered")
    assert "trace" not in str(Report("0", "local", 1, 0.0, (finding,), {"driver": []}))
    traces = {"driver": [], **{f"executor {at}": ["10:00 net  \x1blost " * 40] for at in range(10)}}
    report = Report("0", "local", 1, 0.0, (finding,), traces)
    lines = str(report).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith(" trace of executor ") for line in lines) == 8
    assert lines[-1] == " traces of 2 more processes are in the JSON"
    assert "\x1b" not in str(report)
    assert list(report.to_json()["traces"]) == [f"executor {at}" for at in range(10)]
    assert "trace of executor 0" in report._repr_html_()
