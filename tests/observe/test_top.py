"""``python -m headgate top``: its text, its screen, and where its state comes from."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from rich.cells import cell_len
from tests.kit.runs import state, wide
from textual.widgets import DataTable, Input, Static

from headgate.__main__ import main
from headgate.errors import OptionError
from headgate.observe import _extras
from headgate.observe.live_page.server import Page
from headgate.observe.top import lines
from headgate.observe.top.app import Top
from headgate.observe.top.states import Unreachable, states
from headgate.observe.view import view


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(state()))
    return str(path)


# The text.


@pytest.mark.parametrize(
    ("number", "words"),
    [(None, "-"), (999, "999 B"), (999.6, "1.0 kB"), (61_000_000, "61.0 MB"), (4e14, "400 TB")],
)
def test_numbers_have_few_digits(number, words):
    assert lines.size(number) == words


def test_a_state_as_text(file, capsys):
    assert main(["top", file, "--once"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"{lines.page(view(state()), 'busy')}\n"
    assert sum(line.endswith("<- slowest") for line in shown.splitlines()) == 1


def test_the_peak_of_a_pool_is_not_known_before_a_task_has_ended():
    found = state()
    run = found["runs"][0]
    for one in (run, *run["tasks"]):
        one["peak_bytes"] = 0
    assert lines.title(view(found)).endswith("  pool -")
    place = lines.COLUMNS.index("peak")
    assert {row[place] for row in lines.tasks(view(found))} == {"-"}


def test_rows_are_sorted_and_filtered(file, capsys):
    assert main(["top", file, "--once", "--sort", "bytes", "--filter", "NODE-B"]) == 0
    shown = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in shown if "node-" in line and "failed:" not in line]
    assert [row[1] for row in rows] == ["3", "3", "1", "1"]
    found = lines.tasks(view(state()), "task")
    assert [row[1] for row in found] == ["0", "0", "1", "1", "2", "2", "3", "3"]


def test_the_state_as_json_and_as_ascii(file, capsys):
    assert main(["top", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == state()
    assert main(["top", file, "--once", "--ascii"]) == 0
    assert capsys.readouterr().out.isascii()


def test_control_characters_from_outside_are_shown_as_escapes():
    found = state()
    found["runs"] = found["runs"][1:2]
    shown = lines.page(view(found))
    assert "HG-6001" in shown
    assert "\x1b" not in shown
    assert "\u2028" not in shown
    assert "<img src=x" in shown


def test_what_is_to_be_known_of_a_streaming_job_has_a_line_each():
    found = state()
    found["runs"] = found["runs"][2:]
    found["runs"][0]["notices"] = ["windows: 7 rows \x1bcame too late"]
    shown = lines.page(view(found)).splitlines()
    assert shown[0].startswith("headgate top  clicks/2  stream  running 42.0 s  10 rows")
    assert shown[0].endswith("restarts 1")
    assert "again: windows: 7 rows \\x1bcame too late" in shown
    assert any(line.startswith("source  0     -     running  45%") for line in shown)
    assert any(line.startswith("7   complete  120 ms") for line in shown)


def test_tasks_that_are_not_shown_are_counted():
    assert "200 more tasks are not shown" in lines.page(view(wide(600))).splitlines()


# Where the state comes from.


def test_the_state_of_a_live_page():
    with Page(state) as page:
        assert states(page.address)() == state()
        with pytest.raises(Unreachable, match="it refuses the token"):
            states(page.address + "x")()
        gone = page.address
    with pytest.raises(Unreachable, match="refused"):
        states(gone)()


def test_a_redirect_is_not_followed_as_the_token_would_go_along():
    asked = []

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Redirect) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(Unreachable, match="status 302"):
            states(f"http://127.0.0.1:{server.server_port}/?token=a")()
        thread.join(60)
    assert asked == ["/state.json"]


def test_what_is_no_state_is_refused_with_a_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("HEADGATE_UI", raising=False)
    path = tmp_path / "other"
    path.write_bytes(b"[]")
    with pytest.raises(OptionError, match="is no state of runs"):
        states(str(path))
    assert main(["top"]) == 1
    assert "the variable HEADGATE_UI is not set" in capsys.readouterr().err
    assert main(["top", "http://127.0.0.1:9/?token=x", "--once"]) == 1
    assert "no connection to 127.0.0.1:9" in capsys.readouterr().err


def test_only_the_screen_needs_textual(file, capsys, monkeypatch):
    monkeypatch.setattr(_extras, "_is_installed", lambda _: False)
    assert main(["top", file, "--once"]) == 0
    capsys.readouterr()
    assert main(["top", file]) == 1
    assert 'pip install "headgate[ui]"' in capsys.readouterr().err


# The screen.


class Screen:
    """Drives the screen of a state."""

    def __init__(self, ask, folder=None):
        self.app = Top(ask, period=1000.0, folder=folder)

    def play(self, act):
        """Run an action, a coroutine function of this object, on the screen."""

        async def played():
            async with self.app.run_test(size=(140, 40)) as self.pilot:
                await self.settle()
                await act(self)

        asyncio.run(played())

    async def settle(self):
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.pilot.pause()

    @property
    def rows(self):
        """The cells of the table."""
        table = self.app.query_one(DataTable)
        return [[cell.plain for cell in table.get_row_at(n)] for n in range(table.row_count)]

    @property
    def head(self):
        """The names of the columns."""
        return [c.label.plain for c in self.app.query_one(DataTable).ordered_columns]

    def text(self, name):
        """The text of a part."""
        return str(self.app.query_one(name, Static).render())


def test_columns_are_wide_enough_before_anything_is_drawn():
    now = state()
    hosts = ("node-a", "a-longer-name-of-a-host", "本機" * 8)

    async def act(screen):
        table = screen.app.query_one(DataTable)
        for host in hosts:
            now["runs"][0]["tasks"][0]["host"] = host
            screen.app.refresh_all()
            widths = [column.get_render_width(table) for column in table.ordered_columns]
            for row in screen.rows:
                needed = [cell_len(cell) + 2 * table.cell_padding for cell in row]
                assert all(has >= need for has, need in zip(widths, needed, strict=True))

    Screen(lambda: now).play(act)


def test_keys_sort_filter_and_change_the_table(tmp_path):
    async def act(screen):
        assert screen.text("#title").startswith("headgate top  936b/2")
        assert "slowest: reduce 3 is busy 97 %" in screen.text("#about")
        assert screen.rows[0][:2] == ["reduce", "3"]
        assert "BUSY V" in screen.head
        await screen.press("s")
        assert "BLOCKED V" in screen.head
        assert screen.rows[0][5] == "62%"
        await screen.press("r")
        assert "BLOCKED ^" in screen.head
        assert screen.rows[0][5] == "0%"
        await screen.press("slash", *"node-b", "enter")
        assert {row[2] for row in screen.rows} == {"node-b"}
        assert screen.app.query_one(Input).has_class("open")
        await screen.press("s")  # a key again, and no letter of the filter
        assert "IDLE ^" in screen.head
        await screen.press("escape")
        assert len(screen.rows) == 8
        await screen.press("tab")
        assert screen.rows == [["0", "1.0 kB", "2.0 kB"], ["1", "3.0 kB", "9.0 kB"]]
        await screen.press("c")
        assert screen.rows == [], "an exchange has no checkpoints"
        await screen.press("n", "n")
        assert [row[:2] for row in screen.rows] == [
            ["9", "pending"],
            ["8", "failed"],
            ["7", "complete"],
        ]
        await screen.press("c", "p")
        assert "failed" in screen.text("#title")
        assert "[HG-6001]" in screen.text("#about")
        assert not set("\x1b\u2028") & set(screen.text("#about"))
        await screen.press("p", "w")
        assert "running" in screen.text("#title")
        (written,) = tmp_path.iterdir()
        assert json.loads(written.read_text()) == state()
        await screen.press("q")
        assert screen.app._exit

    Screen(state, tmp_path).play(act)


def test_a_page_that_does_not_answer_leaves_the_last_state_on_the_screen():
    answers = iter([state()])

    def ask():
        try:
            return next(answers)
        except StopIteration:
            raise Unreachable("127.0.0.1:80: refused") from None

    async def act(screen):
        assert len(screen.rows) == 8
        screen.app.ask()
        await screen.settle()
        assert screen.text("#title").endswith("no connection to 127.0.0.1:80: refused")
        assert len(screen.rows) == 8

    Screen(ask).play(act)


def test_a_driver_without_runs_has_an_empty_screen():
    async def act(screen):
        assert screen.text("#title") == "headgate top   no run yet"
        await screen.press("n", "p", "tab", "s", "r", "c")
        assert screen.rows == []

    Screen(lambda: {"runs": []}).play(act)
