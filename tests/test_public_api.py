"""The public names and signatures of Headgate are those of tests/public_api.txt, which changes on purpose only."""

import inspect
import re
from importlib import import_module

import pytest
from scripts import public_api

REMEDY = """the public API differs from tests/public_api.txt. If that is meant, run

    python scripts/public_api.py --write

and say in changes/ what a user has to do. The difference: python scripts/public_api.py"""


def test_the_api_is_the_stored_one():
    stored = public_api.LIST.read_text(encoding="utf-8")
    assert len(stored.splitlines()) > 1000
    assert public_api.listing() == stored, REMEDY


def test_the_stored_names_are_those_that_python_sees():
    listed = 0
    for module in (
        "headgate",
        "headgate.errors",
        "headgate.sink",
        "headgate.source",
        "headgate.testing",
    ):
        for name in public_api.names_of(module):
            assert hasattr(import_module(module), name), f"{module}.{name}"
            listed += 1
    assert listed > 100


@pytest.mark.parametrize("name", ["RecordWriter", "RecordReader", "ShuffleEnvironment", "per_key"])
def test_the_stored_parameters_are_those_that_python_sees(name):
    value = getattr(import_module("headgate"), name)
    parameter_names = list(inspect.signature(value).parameters)
    head = f"def headgate.{name}(" if inspect.isfunction(value) else "def .__init__("
    stored = public_api.LIST.read_text(encoding="utf-8")
    entry = stored[re.search(rf"^.*headgate\.{name}\b", stored, re.MULTILINE).start() :]
    signature = entry[entry.index(head) + len(head) :].partition(") ->")[0]
    # A parameter follows the bracket, or a comma and a blank, outside of brackets of types.
    flat = re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", re.sub(r"\[[^\[\]]*\]", "", signature))
    stored_names = [part.strip().lstrip("*").partition(":")[0] for part in flat.split(",")]
    assert [
        part.partition("=")[0] for part in stored_names if part and part != "/"
    ] == parameter_names


SOURCES = {
    "__init__.py": """
from headgate.inner import Visible, Options as Options, call
__all__ = ["Visible", "call"]
""",
    "inner.py": """
from dataclasses import dataclass
class Hidden:
    def inherited(self): ...
    def overridden(self): ...
    def _private(self): ...
class Visible(Hidden):
    size: int
    limit: int = 3
    def __init__(self, a, /, b: int = 1, *rest: str, c: str = "x", **more: int) -> None:
        self.shown = a
        self._hidden = b
    def __repr__(self): ...
    def overridden(self, new): ...
    @property
    def length(self) -> int: ...
    @staticmethod
    def still(x): ...
    @classmethod
    async def later(cls, x): ...
class Options(TypedDict):
    memory: str
def call(first, **options: Unpack[Options]) -> None: ...
""",
}
LISTED = """\
# headgate

class headgate.Visible(Hidden)
    .size: int
    .limit: int = ...
    .shown
    def .__init__(a, /, b: int = 1, *rest: str, c: str = 'x', **more: int) -> None
    classmethod async def .later(x)
    property .length -> int
    def .overridden(new)
    staticmethod def .still(x)
    def .inherited()
def headgate.call(first, **options: Unpack[Options]) -> None
class headgate.call.Options(TypedDict)
    .memory: str
"""


@pytest.fixture
def small_tree(tmp_path, monkeypatch):
    """Return a folder of sources whose API the script lists."""
    (tmp_path / "headgate").mkdir()
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    for name, text in SOURCES.items():
        (tmp_path / "headgate" / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(public_api, "PYTHON", tmp_path)
    monkeypatch.setattr(public_api, "ROOT", tmp_path)
    public_api.tree.cache_clear()
    public_api.resolved.cache_clear()
    yield tmp_path
    public_api.tree.cache_clear()
    public_api.resolved.cache_clear()


@pytest.mark.usefixtures("small_tree")
def test_a_class_is_listed_with_what_users_reach():
    assert public_api.listing() == LISTED


def test_a_name_that_no_module_defines_is_an_error(small_tree):
    file = small_tree / "headgate" / "__init__.py"
    file.write_text('__all__ = ["gone"]\n', encoding="utf-8")
    with pytest.raises(LookupError, match=r"headgate\.gone is public, and no module"):
        public_api.listing()
