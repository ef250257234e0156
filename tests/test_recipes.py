"""The recipes for clusters: Spark has their confs, the doctor prints their findings, and the image copies files that there are."""

import fnmatch
import re
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pytest
from scripts.page_blocks import ROOT, blocks

from headgate.spark.connect import connect_error
from headgate.spark.doctor.checks.session import losses
from headgate.spark.doctor.context import Context
from headgate.spark.doctor.findings import Report

PAGES = sorted(
    [
        *(ROOT / "docs" / "deploy").glob("*.md"),
        ROOT / "docs" / "clusters.md",
        ROOT / "docs" / "kept.md",
    ]
)
#: Jars with the confs of the core, of YARN, of Kubernetes and of SQL.
JARS = (
    "spark-core_",
    "spark-yarn_",
    "spark-kubernetes_",
    "spark-network-common_",
    "spark-catalyst_",
    "spark-sql-api_",
)
#: Beginnings of confs that are Headgate's, a platform's, or name a variable.
OTHERS = ("spark.headgate.", "spark.emr", "spark.dataproc", "spark.executorEnv.")
INSTRUCTIONS = {"ARG", "COPY", "ENV", "FROM", "RUN", "USER"}


@cache
def constants():
    """Return the texts in Spark's classes that begin like a conf, or continue one."""
    pyspark = pytest.importorskip("pyspark")
    found = set()
    for path in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        if path.name.startswith(JARS):
            with zipfile.ZipFile(path) as jar:
                for name in jar.namelist():
                    if re.search(r"(onf|package\$|SparkLauncher).*\.class$", name):
                        words = re.findall(rb"(?:spark)?\.[A-Za-z][\w.]*", jar.read(name))
                        found.update(word.decode() for word in words)
    return found


def exists(conf):
    """Return whether Spark has a conf, whole or as a prefix that it completes."""
    known = constants()
    ends = [place for place, letter in enumerate(conf) if letter == "."][1:]
    return conf in known or any(conf[:end] in known and conf[end:] in known for end in ends)


def confs(page):
    """Return the confs of Spark that the blocks and the words of a page name, but for Headgate's."""
    text = page.read_text(encoding="utf-8")
    lines = "\n".join(block.code for block in blocks(text) if block.language == "properties")
    named = [
        *re.findall(r"^(spark\.\S+)", lines, re.MULTILINE),
        *re.findall(r"`(spark\.[\w.]+)", text),
    ]
    return {name for name in named if not name.startswith(OTHERS)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_spark_has_the_confs_of_the_recipes(page):
    assert sorted(conf for conf in confs(page) if not exists(conf)) == []


def test_a_conf_that_spark_lacks_is_found():
    assert sum(len(confs(page)) for page in PAGES) >= 30
    assert len(constants()) > 500
    assert exists("spark.executor.instances")
    assert not exists("spark.executor.instance")
    assert not exists("spark.kubernetes.authenticate.driver.serviceAccount")


def wrong_lines(text):
    """Return the lines of a Dockerfile with an unknown instruction, or that copy what `make wheel` does not make."""
    lines = text.strip().splitlines()
    wrong = [line for line in lines if line.split()[0] not in INSTRUCTIONS]
    if next(line.split()[0] for line in lines if line.split()[0] != "ARG") != "FROM":
        wrong.append(lines[0])
    for line in lines:
        words = line.split()
        if words[0] == "COPY" and not is_in_the_build(words[1]):
            wrong.append(line)
        if words[0] == "USER" and line is lines[-1] and words[1] in {"root", "0"}:
            wrong.append(line)
    return wrong


def is_in_the_build(path):
    """Return whether a path is in the repository, or matches the wheel that `make wheel` leaves, and no other one."""
    return (ROOT / path).exists() or fnmatch.filter(wheels(), path) == wheels()[:1]


@cache
def wheels():
    """Return the names of the wheels that may lie in dist: the one for clusters, and those that do not fit them."""
    command = ["scripts/build_wheel.sh", "--name", "x86_64-unknown-linux-gnu"]
    name = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    native = name.strip()
    start, _, _ = native.partition("-cp")
    return [native, f"{start}-py3-none-any.whl", native.replace("manylinux_2_28", "musllinux_1_2")]


def test_the_image_has_the_form_of_a_dockerfile():
    text = (ROOT / "docs" / "deploy" / "docker.md").read_text(encoding="utf-8")
    (shown,) = [block.code for block in blocks(text) if block.language == "dockerfile"]
    image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert shown == image
    assert wrong_lines(image) == []
    assert wrong_lines("RUN a\nFROM b\n") == ["RUN a"]
    assert wrong_lines("FROM b\nCOPPY LICENSE /\n") == ["COPPY LICENSE /"]
    assert wrong_lines("FROM b\nCOPY nowhere /\nUSER root") == ["COPY nowhere /", "USER root"]
    assert wrong_lines("FROM b\nUSER 0") == ["USER 0"]
    assert wrong_lines("FROM b\nCOPY dist/headgate-*.whl /") == ["COPY dist/headgate-*.whl /"]


#: A pattern for wheels that a shell completes; a folder that has one wheel alone needs no exact one.
PATTERN = re.compile(r"(?<!/tmp/)(?:dist/|headgate-)[\w.*/-]*\*[\w.*-]*\.whl")


def ambiguous(text):
    """Return the patterns in a text that match another wheel than the one for clusters, or none."""
    names = {wheel: [wheel, wheel.removeprefix("dist/")] for wheel in wheels()}
    return [
        pattern
        for pattern in PATTERN.findall(text)
        if [wheel for wheel in names if fnmatch.filter(names[wheel], pattern)] != wheels()[:1]
    ]


def test_the_pages_name_one_wheel_where_both_lie_in_a_folder():
    pages = [ROOT / "README.md", ROOT / "deploy" / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / "python" / "headgate" / "catalogue").rglob("*.md")
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    assert sum(len(PATTERN.findall(text)) for text in texts.values()) >= 8
    assert {path: wrong for path, text in texts.items() if (wrong := ambiguous(text))} == {}
    assert ambiguous("pip install headgate-*.whl") == ["headgate-*.whl"]
    assert ambiguous("pip install dist/*.whl dist/*manylinux*.whl") == ["dist/*.whl"]


def lines_of(confs):
    """Return the lines that the doctor prints of shuffle files that outlive an executor, for these confs."""
    context = Context(master="yarn", confs=confs)
    report = Report("", "yarn", 1, 0.0, tuple(losses(context)))
    return "\n".join(
        line for line in str(report).splitlines() if line.startswith((" WARN", "    "))
    )


@pytest.mark.parametrize(
    ("page", "confs"),
    [
        ("yarn", {"spark.shuffle.service.enabled": "true"}),
        ("emr", {"spark.shuffle.service.enabled": "true"}),
        ("dataproc", dict.fromkeys(("spark.decommission.enabled", "spark.storage.decommission.enabled"), "true")),
    ],
)  # fmt: skip
def test_the_doctor_prints_what_the_pages_say(page, confs):
    text = (ROOT / "docs" / "deploy" / f"{page}.md").read_text(encoding="utf-8")
    assert len(lines_of(confs).splitlines()) > 4
    assert lines_of(confs) in text


def test_the_error_on_spark_connect_is_the_one_of_the_page():
    text = (ROOT / "docs" / "deploy" / "databricks.md").read_text(encoding="utf-8")
    remedy = "python -m headgate doctor --master MASTER, where a classic session can start"
    assert str(connect_error("doctor()", "session", remedy)) in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_of_a_platform_says_that_it_is_not_tried(page):
    if page.parent.name == "deploy":
        _, opening, *_ = page.read_text(encoding="utf-8").split("\n\n")
        assert opening.startswith("Not tried")
