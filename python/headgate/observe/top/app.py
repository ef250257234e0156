"""The screen of ``top``, drawn by textual. It asks for the state once a second, in a thread of its own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import work
from textual.app import App
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Input, Static

from headgate._text import plain
from headgate.observe.top import lines
from headgate.observe.top.states import Unreachable
from headgate.observe.view import view

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from headgate.observe.state import State

_PERIOD: Final = 1.0


class Top(App[None]):  # type: ignore[misc]
    """The screen.

    Args:
        ask: returns the state; may block, or raise Unreachable.
        period: seconds between two states.
        folder: where ``w`` writes the state; the current folder if not given.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { background: $primary; color: $text; padding: 0 1; height: 1; }
    #about { padding: 0 1; height: auto; }
    #filter { display: none; height: 3; }
    #filter.open { display: block; }
    #table { height: 1fr; }
    """
    BINDINGS: ClassVar = [
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "close_filter", show=False),
        Binding("tab", "table('')", "channels", priority=True),
        Binding("c", "table('checkpoints')", "checkpoints"),
        Binding("n", "run(1)", "older run"),
        Binding("p", "run(-1)", "newer run"),
        Binding("w", "save", "save JSON"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(
        self, ask: Callable[[], State], period: float = _PERIOD, folder: Path | None = None
    ) -> None:
        super().__init__()
        self._ask = ask
        self._period = period
        self._folder = folder or Path()
        self._state: State = {"runs": []}
        self._problem = ""
        self._key = ""
        #: Kind of the rows, their order, and the text that they must have.
        self.kind = "tasks"
        self.sort_by = "busy"
        self.up = False
        self.having = ""

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static(id="title", markup=False)
        yield Static(id="about", markup=False)
        yield Input(placeholder="words that a row must contain", id="filter")
        yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one(DataTable).focus()
        self.ask()
        self.set_interval(self._period, self.ask)

    @work(thread=True, exclusive=True, group="ask")  # type: ignore[untyped-decorator]
    def ask(self) -> None:
        """Ask for the state, in a thread."""
        try:
            state, problem = self._ask(), ""
        except Unreachable as error:
            state, problem = self._state, f"no connection to {error}"
        self.call_from_thread(self._take, state, problem)

    def _take(self, state: State, problem: str) -> None:
        self._state, self._problem = state, problem
        self.refresh_all()

    def refresh_all(self) -> None:
        """Draw the state that is there."""
        shown = view(self._state, self._key)
        problem = f"  {plain(self._problem)}" if self._problem else ""
        self.query_one("#title", Static).update(Text(lines.title(shown) + problem))
        self.query_one("#about", Static).update(Text("\n".join(lines.about(shown))))
        head, rows = self._content(shown)
        table: DataTable[Text] = self.query_one(DataTable)
        names, columns = [name.upper() for name in head], table.ordered_columns
        is_same = [column.label.plain for column in columns] == names
        before = [column.width for column in columns] if is_same else [0] * len(names)
        # textual adapts widths after it has drawn the cells, and keeps these as they are: cut.
        widths = [
            max(width, *map(cell_len, cells))
            for width, *cells in zip(before, names, *rows, strict=True)
        ]
        cursor, scroll = (table.cursor_row, table.scroll_y) if is_same else (0, 0)
        table.clear(columns=widths != before)
        if widths != before:
            for name, width in zip(names, widths, strict=True):
                table.add_column(Text(name), width=width)
        table.add_rows([Text(cell) for cell in row] for row in rows)
        if rows:
            table.move_cursor(row=min(cursor, len(rows) - 1), scroll=False)
            table.scroll_y = scroll

    def _content(self, shown: dict[str, Any]) -> tuple[lines.Row, list[lines.Row]]:
        if self.kind == "tasks":
            arrow = "^" if self.up else "v"
            head = tuple(f"{c} {arrow}" if c == self.sort_by else c for c in lines.COLUMNS)
            return head, lines.tasks(shown, self.sort_by, self.having, up=self.up)
        if self.kind == "channels":
            head, rows = lines.channels(shown)
            return head or ("channels are known once tasks have ended",), rows
        return lines.CHECKPOINTS, lines.checkpoints(shown)

    def action_sort(self) -> None:
        """Sort by the next column."""
        place = lines.COLUMNS.index(self.sort_by)
        self.sort_by = lines.COLUMNS[(place + 1) % (len(lines.COLUMNS) - 1)]
        self.refresh_all()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self.up = not self.up
        self.refresh_all()

    def action_table(self, kind: str) -> None:
        """Show another table, or go back to the tasks."""
        wanted = kind or "channels"
        self.kind = "tasks" if self.kind == wanted else wanted
        self.refresh_all()

    def action_run(self, step: int) -> None:
        """Show an older or newer run."""
        keys = [run["key"] for run in view(self._state)["runs"]]
        if keys:
            place = keys.index(self._key) if self._key in keys else 0
            place = min(max(0, place + step), len(keys) - 1)
            # The newest run is followed, so it has no key.
            self._key = keys[place] if place else ""
            self.refresh_all()

    def action_filter(self) -> None:
        """Ask for the words of a filter."""
        field = self.query_one(Input)
        field.add_class("open")
        field.focus()

    def action_close_filter(self) -> None:
        """Drop the filter."""
        self.query_one(Input).value = ""
        self._leave_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the words are typed."""
        self.having = event.value
        self.refresh_all()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._leave_filter()

    def _leave_filter(self) -> None:
        field = self.query_one(Input)
        field.set_class(bool(field.value), "open")
        self.query_one(DataTable).focus()

    def action_save(self) -> None:
        """Write the state to a file."""
        path = self._folder / time.strftime("headgate-%Y%m%d-%H%M%S.json")
        try:
            path.write_text(json.dumps(self._state), encoding="utf-8")
        except OSError as error:
            self.notify(f"not written: {error}", severity="error", markup=False)
        else:
            self.notify(f"written: {path}", markup=False)
