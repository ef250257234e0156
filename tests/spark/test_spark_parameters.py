"""Every parameter of every public call of headgate.spark gets every wrong value of tests/kit/bad_values.py."""

import pytest
from tests.kit.bad_values import Call, not_covered, problems

import headgate.spark
from headgate.sink import FileSink
from headgate.source import NumberSequenceSource

#: A class can be called, so it may be a function of a user, whose errors are its own.
A_CLASS = dict.fromkeys(("map", "combine", "reduce", "update", "message"), ("class",))
#: Public names that are no calls of users.
OTHERS = dict.fromkeys(["Explanation", "Run", "Stage", "Task", "Verdict"], "is given to users")


def same(batches):
    return batches


@pytest.fixture
def calls(spark, tmp_path):
    """Return the calls, none of which runs a Spark job with its good arguments, apart from write()."""
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "k string, n long")
    whole = {"df": rows, "by": "k", "map": same, "reduce": same, "schema": rows.schema}

    def planned(result):
        assert result.schema is not None

    return [
        Call("exchange", headgate.spark.exchange, lambda: whole, planned, A_CLASS),
        Call(
            "exchange of a source",
            headgate.spark.exchange,
            lambda: {"df": NumberSequenceSource(0, 9), "spark": spark},
            planned,
            A_CLASS,
        ),
        Call(
            "Input",
            headgate.spark.Input,
            lambda: {"data": rows, "by": "k"},
            lambda one: planned(headgate.spark.exchange([one], reduce=same, schema=rows.schema)),
            A_CLASS,
        ),
        Call("explain", headgate.spark.explain, lambda: {"df": headgate.spark.exchange(**whole)}),
        Call(
            "filesystem",
            headgate.spark.filesystem,
            lambda: {"uri": f"file://{tmp_path}", "spark": spark},
        ),
        Call("last_stats", headgate.spark.last_stats),
        Call(
            "register",
            headgate.spark.register,
            lambda: {"spark": spark},
        ),
        Call(
            "report",
            headgate.spark.report,
            lambda: {"path": tmp_path / "run.json"},
            works={"path": ("text",)},
        ),
        Call("ui", headgate.spark.ui, use=lambda page: page.close(), works={"host": ("text",)}),
    ]


def test_a_wrong_argument_works_or_is_refused_in_words(calls):
    found = [problem for call in calls for problem in problems(call)]
    assert not found, "\n".join(found)


def test_a_wrong_argument_of_a_call_that_runs_is_refused_before(spark, tmp_path):
    """Values that write(), calls(), iterate() and doctor() take are left out: each would run a job."""
    rows = spark.createDataFrame([("a", 1)], "k string, n long")
    calls = [
        Call(
            "write",
            headgate.spark.write,
            lambda: {"df": rows, "sink": FileSink(tmp_path / "out", mode="append"), "by": "k"},
            works={
                **dict.fromkeys(("by", "map", "combine", "reduce"), ("None", "function", "class")),
                **dict.fromkeys(("spark", "schema", "watermarks", "parallelism"), ("None",)),
                **dict.fromkeys(("num_partitions", "sort_within"), ("None",)),
            },
        ),
        Call(
            "calls",
            headgate.spark.calls,
            lambda: {
                "df": rows,
                "function": same,
                "schema": "k string, n long",
                "checkpoint": str(tmp_path / "calls"),
            },
            works={"function": ("function", "class"), "checkpoint": ("text",)},
        ),
    ]
    found = [problem for call in calls for problem in problems(call)]
    assert not found, "\n".join(found)


def test_every_public_call_is_tried(calls):
    names = {name: getattr(headgate.spark, name) for name in headgate.spark.__all__}
    others = {**OTHERS, **dict.fromkeys(("calls", "doctor", "iterate", "write"), "runs")}
    assert not_covered(names, calls, others) == set()
