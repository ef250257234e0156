"""A notebook that explains an exchange and shows its numbers, executed, and drawn as the site draws notebooks."""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from scripts.notebooks import executed

EXCHANGE = """\
import time

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from headgate.spark import exchange, explain, last_stats


def parse(batches):
    for batch in batches:
        yield pa.record_batch({"user": pc.bit_wise_and(batch["id"], 1023), "at": batch["id"]})


def score(batches):
    for batch in batches:
        time.sleep(0.5)  # a slow model
        yield batch


spark = SparkSession.builder.master("local[4]").getOrCreate()
events = spark.range(1_000_000)
columns = "user long, at long"
scores = exchange(events, map=parse, map_schema=columns, by="user", reduce=score, schema=columns)
explain(scores)"""

RUN = """\
scores.write.format("noop").mode("overwrite").save()
last_stats()"""

#: Beside one page, lists of pages are empty.
SETTINGS = """\
extensions = ["myst_nb"]
html_context = {"default_mode": "auto"}
html_sidebars = {"**": []}
html_theme = "pydata_sphinx_theme"
html_theme_options = {"secondary_sidebar_items": [], "footer_start": [], "footer_end": []}
html_title = "Headgate"
nb_execution_mode = "off"
root_doc = "notebook"
"""


def site(notebook, folder):
    """Build a site of one executed notebook; return its page."""
    (folder / "docs").mkdir()
    (folder / "docs" / "conf.py").write_text(SETTINGS, encoding="utf-8")
    nbformat.write(notebook, folder / "docs" / "notebook.ipynb")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", folder / "docs", folder / "site"]
    subprocess.run(command, check=True, timeout=600)
    return folder / "site" / "notebook.html"


@pytest.mark.timeout(1500)
def test_a_notebook_of_spark_has_the_explanation_and_the_numbers_of_a_run(visitor, tmp_path):
    cells = [new_markdown_cell("# Scores"), new_code_cell(EXCHANGE), new_code_cell(RUN)]
    notebook = executed(new_notebook(cells=cells))
    for cell in notebook.cells[1:]:
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        assert [sorted(output.data) for output in cell.outputs] == [["text/html", "text/plain"]]
    visitor.driver.get(site(notebook, tmp_path).as_uri())
    explained, numbers = visitor.texts(".cell_output")
    assert "kept: map makes the rows in Python" in explained
    assert "done after" in numbers
    assert "reduceidle" in numbers, "a row for each stage"
    assert str(tmp_path) not in visitor.text("body")
    wide = "return [...document.querySelectorAll('.cell_output')].map((e) => e.scrollWidth > e.clientWidth)"
    assert visitor.run(wide) == [False, False], "nothing is cut"
    end = "return Math.ceil(document.querySelector('article').getBoundingClientRect().bottom) + 16"
    visitor.shoot("notebook", visitor.run(end))
