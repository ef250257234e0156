"""The doctor's report as text, HTML and JSON, its exit codes, and the command line around it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import errors
from headgate.__main__ import main
from headgate.errors import ERRORS
from headgate.spark.doctor import command, doctor
from headgate.spark.doctor.findings import Finding, Report

OK = Finding("HG-3003", "ok", "headgate", "headgate 0.5.0 on the driver and 2 of 2 executors")
WARN = Finding("HG-1203", "warn", "clocks", "the clock of executor 1 is 3.0 s behind", "run chrony")
FAIL = Finding("HG-3007", "fail", "pairs", "1 of 2 pairs failed", "open the ports · another listen")


def report(*findings):
    return Report("0.5.0", "spark://host:7077", 2, 1.26, findings)


@pytest.mark.parametrize(
    ("findings", "level", "code"),
    [((), "ok", 0), ((OK,), "ok", 0), ((OK, WARN), "warn", 1), ((FAIL, WARN, OK), "fail", 2)],
)
def test_the_worst_finding_decides(findings, level, code):
    assert report(*findings).level == level
    assert report(*findings).exit_code == code


def test_the_text():
    assert str(report(OK, WARN, FAIL)).splitlines() == [
        "headgate doctor 0.5.0 · spark://host:7077 · 2 executors · 1.3 s",
        " ok    HG-3003  headgate   headgate 0.5.0 on the driver and 2 of 2 executors",
        " WARN  HG-1203  clocks     the clock of executor 1 is 3.0 s behind",
        "                           -> run chrony",
        " FAIL  HG-3007  pairs      1 of 2 pairs failed",
        "                           -> open the ports · another listen",
        " 1 ok, 1 warning, 1 failure; more: python -m headgate explain CODE",
    ]


def test_a_session_of_spark_connect_is_refused_with_another_way_to_examine_its_cluster():
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(
        errors.NotBuiltError, match=r"HG-2201.*doctor\(\) needs a classic"
    ) as caught:
        doctor(session)
    assert "python -m headgate doctor --master" in str(caught.value)
    assert "DataFrame" not in str(caught.value)


def test_json_has_a_version_and_survives_a_round_trip():
    assert json.loads(json.dumps(report(OK, FAIL).to_json())) == {
        "schema_version": 1,
        "headgate": "0.5.0",
        "master": "spark://host:7077",
        "executors": 2,
        "seconds": 1.26,
        "level": "fail",
        "exit_code": 2,
        "findings": [
            {"code": "HG-3003", "level": "ok", "check": "headgate", "summary": OK.summary, "remedy": ""},
            {"code": "HG-3007", "level": "fail", "check": "pairs", "summary": FAIL.summary, "remedy": FAIL.remedy},
        ],
        "traces": {},
    }  # fmt: skip


def test_a_failure_can_be_raised_and_a_warning_is_none():
    report(OK, WARN).raise_for_failure()
    with pytest.raises(errors.ConnectError, match="1 of 2 pairs failed") as caught:
        report(WARN, FAIL).raise_for_failure()
    assert caught.value.remedy == FAIL.remedy


class Tags(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name in {"style", "scope"} for name, _ in attrs), attrs

    def handle_data(self, data):
        self.text += data


TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=y>', "\x1b[2Jx\r\ny", "a" * 700]),
)  # fmt: skip
FINDINGS = st.builds(
    Finding, st.sampled_from(sorted(ERRORS)), st.sampled_from(["ok", "warn", "fail"]), TEXTS, TEXTS, TEXTS
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Report,
        TEXTS,
        TEXTS,
        st.integers(0, 10**6),
        st.floats(0, 1e6),
        st.lists(FINDINGS).map(tuple),
    )
)
def test_texts_from_outside_stay_texts(made):
    lines = str(made).split("\n")
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines), lines
    tags = Tags()
    tags.feed(made._repr_html_())
    assert tags.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert json.loads(json.dumps(made.to_json()))["exit_code"] == made.exit_code


def test_html_says_what_the_text_says():
    tags = Tags()
    tags.feed(report(OK, FAIL)._repr_html_())
    for words in (OK.summary, FAIL.summary, FAIL.remedy, "FAIL", "HG-3007", "1 failure"):
        assert words in tags.text


def test_the_command_examines_this_machine(capsys):
    code = main(["doctor", "--local"])
    said = capsys.readouterr()
    assert said.out.startswith("headgate doctor ")
    assert "· this machine ·" in said.out
    assert "memory is shared by memfd_create" in said.out
    assert code in {0, 1}
    assert not said.err


def test_the_command_prints_nothing_but_json(capsys):
    code = main(["doctor", "--local", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    assert found["exit_code"] == code
    assert {one["check"] for one in found["findings"]} >= {
        "headgate",
        "limits",
        "memfd",
        "versions",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--conf", "spark.x"], "--conf spark.x is not NAME=VALUE"),
        (["--conf", "=1"], "--conf =1 is not NAME=VALUE"),
        (["--seconds", "soon"], "invalid float value"),
        (["--wide"], "unrecognized arguments: --wide"),
    ],
)
def test_the_command_refuses_wrong_words(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--local", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_without_java_the_finding_says_so(capsys, monkeypatch):
    def missing():
        raise errors.JavaNotFound("Spark needs Java 17 or newer, and none was found")

    monkeypatch.setattr(command, "require_java", missing)
    assert main(["doctor", "--master", "local[2]", "--json"]) == 2
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["code"], found["level"], found["check"]) == ("HG-1101", "fail", "spark")


def test_the_doctor_of_this_machine_needs_neither_pyspark_nor_pyarrow():
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(['pyarrow', 'pyspark', 'numpy', 'pandas'])\n"
        "from headgate.__main__ import main\n"
        "sys.exit(main(['doctor', '--local']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in {0, 1}, done.stderr
    assert "pyarrow not there, pyspark not there" in done.stdout
    assert re.search(r"^ ok .*memfd", done.stdout, re.MULTILINE), done.stdout
