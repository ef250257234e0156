"""Fake surfaces for progress: a terminal, and a notebook's display."""

import io
import types


class FakeTerminal(io.StringIO):
    """A terminal that keeps the visible text of its last line."""

    def isatty(self):
        """Return True, as a terminal does."""
        return True

    @property
    def visible(self):
        """The visible text of the last line."""
        text = self.getvalue()
        assert "\n" not in text
        line = ""
        for piece in text.split("\r"):
            line = piece + line[len(piece) :]
        return line.rstrip()


class FakeDisplay(types.ModuleType):
    """The used part of IPython.display. It keeps all versions of each output."""

    def __init__(self):
        super().__init__("IPython.display")
        self.outputs = []

    @staticmethod
    def HTML(text):  # noqa: N802 - IPython's name
        """Return the page itself."""
        return text

    def display(self, page, *, display_id):
        """Show a new output; return its handle."""
        assert display_id is True
        self.outputs.append([page])
        return types.SimpleNamespace(update=self.outputs[-1].append)
