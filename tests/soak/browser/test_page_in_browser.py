"""The live page in Chromium: who sees it, its tables, its colours, and a run of Spark that goes on."""

import asyncio
import json
import re
import threading
import time

import pytest
from selenium.webdriver.common.keys import Keys
from tests.kit.runs import HOSTILE, slot, state, task, wide

from headgate.observe.live_page.server import Page
from headgate.observe.top.app import Top
from headgate.observe.top.states import states
from headgate.spark import exchange, report, ui

#: Seconds in the longest history of a stage: producers are done long before the consumers.
SECONDS = (
    "const bars = [...document.querySelectorAll('#history svg:has(rect)')];"
    "return Math.max(0, ...bars.map("
    "(svg) => new Set([...svg.children].map((bar) => bar.getAttribute('x'))).size))"
)


@pytest.fixture
def record():
    """A state that a test may change, and its page."""
    now = state()
    with Page(lambda: now) as page:
        yield now, page


def test_the_link_opens_the_page_and_leaves_no_token_in_the_address(visitor, record):
    _, page = record
    visitor.opened(page)
    assert "token" not in visitor.driver.current_url
    assert page.url.startswith(visitor.driver.current_url)
    assert visitor.run("return document.cookie") == "", "no script reads the cookie"
    visitor.driver.refresh()
    visitor.until(lambda: visitor.text("#run-title"))
    assert visitor.text("#run-title") == "Exchange 936b, run 2, kept: running"
    assert visitor.texts("#runs a span") == ["running", "failed HG-6001", "running"]


def test_without_the_token_there_is_nothing(visitor, record):
    _, page = record
    address = page.url.partition("?")[0]
    visitor.driver.get(address)
    assert visitor.text("body") == "open the link that headgate.spark.ui() shows\n"
    visitor.driver.get(f"{address}?token=x")
    assert visitor.text("body") == "open the link that headgate.spark.ui() shows\n"
    visitor.driver.get("about:blank")
    errors, _ = visitor.logs()
    assert len(errors) >= 2
    assert all("status of 403 (Forbidden)" in error for error in errors)


def test_the_page_saves_a_report_and_the_state(visitor, record, tmp_path):
    now, page = record
    visitor.opened(page)
    allowed = {"behavior": "allow", "downloadPath": str(tmp_path)}
    visitor.driver.execute_cdp_cmd("Page.setDownloadBehavior", allowed)
    for name in ("report.html", "run.json"):
        visitor.element(f"header a[download='{name}']").click()
        visitor.until((tmp_path / name).exists)
    assert json.loads((tmp_path / "run.json").read_bytes()) == now
    visitor.driver.get((tmp_path / "report.html").as_uri())
    assert visitor.texts("h2")


def sorted_by(visitor):
    return visitor.run(
        "const th = document.querySelector('#tasks th[aria-sort]');"
        "return [th.dataset.column, th.ariaSort]"
    )


def test_the_table_of_tasks_is_sorted_by_click_and_by_keyboard(visitor, record):
    _, page = record
    visitor.opened(page)
    assert sorted_by(visitor) == ["busy", "descending"]
    assert visitor.column(1)[0] == "reduce 3"
    head = visitor.element("#tasks th[data-column=task] button")
    head.click()
    assert sorted_by(visitor) == ["task", "descending"]
    names = [f"{role} {number}" for role in ("map", "reduce") for number in range(4)]
    assert visitor.column(1) == names[::-1]
    head.click()
    assert visitor.column(1) == names
    head.send_keys(Keys.TAB, Keys.TAB)  # over "host" to "attempt"
    focused = visitor.driver.switch_to.active_element
    assert focused.text == "attempt"
    focused.send_keys(Keys.ENTER)
    assert sorted_by(visitor) == ["attempt", "descending"]
    focused.send_keys(Keys.SPACE)
    assert sorted_by(visitor) == ["attempt", "ascending"]
    # A new event keeps the order, and the focus.
    visitor.run("window.before = document.querySelector('#tasks tbody tr')")
    visitor.until(lambda: visitor.run("return !window.before.isConnected"))
    assert sorted_by(visitor) == ["attempt", "ascending"]
    assert visitor.driver.switch_to.active_element.text == "attempt"


def test_tasks_that_run_and_have_told_nothing_come_first_with_their_time_so_far(visitor, record):
    now, page = record
    now["runs"][0]["tasks"].append(
        task("map", 9, busy=0, pressed=0, idle=0, rows=0, bytes=0, peak_bytes=0, started_ms=2500)
    )
    visitor.opened(page)
    row = [visitor.column(number)[0] for number in range(1, 12)]
    assert row == ["map 9", "node-b", "19", "running", *["N/A"] * 3, "40.0 s", *["-"] * 3]
    visitor.element("#tasks th[data-column=rows] button").click()
    assert visitor.column(1)[-1] == "map 9"


def test_the_graph_says_who_waits_for_whom_and_changes_while_a_run_goes_on(visitor, record):
    now, page = record
    visitor.opened(page)
    assert visitor.texts("#graph .name") == ["source", "map", "exchange", "reduce", "sink"]
    assert "map waits for exchange: 60 % of the time, HIGH" in visitor.texts("#links li")
    assert visitor.run("return document.querySelectorAll('.edge.pressed').length") == 3
    colour = "return document.querySelectorAll('#graph .box')[1].getAttribute('fill')"
    before = visitor.run(colour)
    run = now["runs"][0]
    run["history"] = [*run["history"][1:], *(slot(2e9 + n, 5, map=(950, 50, 0)) for n in range(5))]
    visitor.until(lambda: visitor.run(colour) != before)
    red, green, blue = map(int, visitor.run(colour)[4:-1].split(","))
    assert blue > green > red, "idle is blue"
    run.update(state="done")
    visitor.until(lambda: visitor.text("#run-title").endswith("done"))


def test_another_run_is_shown_by_its_link_and_hostile_texts_stay_texts(visitor, record):
    _, page = record
    visitor.opened(page)
    visitor.element("#runs li:nth-child(2) a").click()
    visitor.until(lambda: visitor.text("#run-title").startswith("Exchange 3fa1"))
    assert visitor.text("#error") == f"[HG-6001] {HOSTILE}"
    assert visitor.column(2) == [HOSTILE]
    assert visitor.texts("#causes li") == [f"map 0 on node-a failed: {HOSTILE}"]
    assert visitor.run("return document.images.length") == 0
    assert visitor.text("#matrix") == "Not known yet: tasks report it at their end."
    visitor.element("#runs li:nth-child(3) a").click()
    visitor.until(
        lambda: visitor.text("#run-title") == "Streaming job clicks, attempt 2, stream: running"
    )
    assert visitor.texts("#checkpoint-table tbody th") == ["9", "8", "7"]
    assert visitor.texts("#call-table tbody th")[0] == "embed"
    assert len(visitor.texts("#call-waits li")) == 2


def test_paused_the_page_stands_still_and_a_driver_that_ends_is_told(visitor, record):
    now, page = record
    visitor.opened(page)
    visitor.element("#pause").click()
    assert visitor.text("#connection") == "paused"
    now["runs"][0].update(state="done")
    visitor.run("window.before = document.querySelector('#tasks tbody tr')")
    time.sleep(2.5)  # more than two events
    assert visitor.run("return window.before.isConnected")
    visitor.element("#pause").click()
    visitor.until(lambda: visitor.text("#run-title").endswith("done"))
    page.close()
    visitor.until(lambda: visitor.text("#connection").startswith("no connection"))
    errors, _ = visitor.logs()
    others = [error for error in errors if "/events" not in error]
    assert others == []


def test_a_wide_run_is_folded(visitor):
    found = wide(2000)
    with Page(lambda: found) as page:
        visitor.opened(page)
        assert len(visitor.column(1)) == 1000
        assert "and 3000 with less work" in visitor.text("#tasks-caption")
        assert len(visitor.texts("#matrix tbody tr")) == 32
        assert visitor.texts("#matrix tbody th")[0] == "0-61"


@pytest.mark.parametrize(
    ("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")]
)
def test_light_and_dark(visitor, record, scheme, ground):
    _, page = record
    visitor.scheme(scheme)
    visitor.opened(page)
    style = "return getComputedStyle(document.body)[arguments[0]]"
    assert visitor.run(style, "backgroundColor") == ground
    tone = [int(part) for part in visitor.run(style, "color")[4:-1].split(",")]
    assert (sum(tone) > 384) == (scheme == "dark"), "the text stands out from the ground"


def slow(seconds, while_there):
    """Return a function that sleeps ``seconds`` for each batch as long as a file is there."""

    def function(batches):
        for batch in batches:
            if while_there.exists():
                time.sleep(seconds)
            yield batch

    return function


async def drawn_by_top(link):
    """Return what ``python -m headgate top`` draws on 120 columns and 16 lines, as SVG in the fonts that are there."""
    top = Top(states(link), period=3600)
    async with top.run_test(size=(120, 16)) as pilot:
        drawn = ""
        while not all(word in drawn for word in ("may&#160;help", "slowest", "quit")):
            await pilot.pause(0.1)
            drawn = top.export_screenshot(title="python -m headgate top")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


@pytest.mark.timeout(1500)
def test_a_run_of_spark_is_seen_while_it_goes_on(visitor, spark, tmp_path):
    rows, going_on = 400_000, tmp_path / "going on"
    going_on.touch()
    numbers = spark.range(0, rows, 1, 2).selectExpr("id", "repeat('x', 300) as s")
    small = {"num_partitions": 12, "memory": "4m", "segment_size": "64k", "mode": "kept"}
    result = exchange(numbers, by="id", reduce=slow(0.2, going_on), schema=numbers.schema, **small)
    counted = []
    job = threading.Thread(target=lambda: counted.append(result.count()))
    with ui() as page:
        job.start()
        visitor.driver.get(page.url)
        visitor.until(lambda: visitor.text("#verdict").startswith("Slowest: reduce"))
        before = visitor.texts("#numbers dd")
        visitor.until(lambda: visitor.texts("#numbers dd") != before)
        assert visitor.text("#run-title").endswith("kept: running")
        visitor.until(lambda: visitor.run(SECONDS) >= 2)
        visitor.shoot("page-light", 1010)
        visitor.scheme("dark")
        visitor.shoot("page-dark", 1010)
        drawn = asyncio.run(drawn_by_top(page.address))
        going_on.unlink()
        visitor.until(lambda: visitor.text("#run-title").endswith("done"))
        job.join(600)
        assert counted == [rows]
        assert len(visitor.texts("#matrix tbody tr")) == 2
        assert set(visitor.texts("#versions tbody th")) >= {"headgate", "pyarrow", "pyspark"}
        assert "num_partitions" in visitor.texts("#options tbody th")
    report(tmp_path / "report.html", runs=1)
    for scheme in ("light", "dark"):
        visitor.scheme(scheme)
        visitor.driver.get((tmp_path / "report.html").as_uri())
        assert "reduce" in visitor.text("body")
        visitor.shoot(f"report-{scheme}", 1010)
    (tmp_path / "top.html").write_text(
        f'<meta charset="utf-8"><body style="margin:0">{drawn}', "utf-8"
    )
    visitor.driver.get((tmp_path / "top.html").as_uri())
    seen = " ".join(visitor.texts("text")).replace("\N{NO-BREAK SPACE}", " ")
    assert {"map", "reduce", "running", "slowest"} <= set(re.findall(r"[a-z]+", seen))
    visitor.shoot("top", visitor.element("svg").size["height"])
