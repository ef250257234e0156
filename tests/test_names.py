"""Names say what a value is: few variables, parameters, attributes and functions have a word that fits any value."""

import ast
import re
from pathlib import Path

import pytest
from tests.test_architecture import sources

ROOT = Path(__file__).resolve().parent.parent
#: Words that say how a value came, or that fit every value, and classes named so. `_found` counts as `found`.
EMPTY = re.compile(
    "_*(found|one|said|known|given|words|own|kept|made|asked|seen|some|taken|told|Way|There|Asked|Other|Post)_*"
)
#: The nodes of a syntax tree that bind a variable, attribute, parameter, function or class, and the field of the name.
BINDINGS = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
}
STORE = ast.Store()
#: The keyword of the second line of an error, which is documented.
PUBLIC = frozenset({("python/headgate/_error.py", "asked"), ("python/headgate/errors.py", "asked")})
#: Names that are left, by folder. A number only falls.
BUDGETS = {"python": 8, "tests": 1363}
REMEDY = (
    "{count} names say nothing of their values, {budget} are left from before. Name what the value is, in the terms of its "
    "field (`for split in splits`, `missing`, `schema`); if you removed some, lower BUDGETS in tests/test_names.py"
)


def empty_names(text, path=""):
    """Return the line and name of each binding that says nothing of its value, in the order of lines."""
    names = []
    for node in ast.walk(ast.parse(text)):
        name = getattr(node, BINDINGS.get(type(node), ""), None)
        is_bound = isinstance(getattr(node, "ctx", STORE), ast.Store)
        if name and is_bound and EMPTY.fullmatch(name) and (path, name) not in PUBLIC:
            names.append((node.lineno, name))
    return sorted(names)


@pytest.mark.parametrize("folder", BUDGETS)
def test_no_more_names_say_nothing_of_their_values(folder):
    looked, wrong = 0, []
    for file in sources(ROOT, folder, suffix=".py"):
        looked += 1
        path = file.relative_to(ROOT).as_posix()
        wrong += [
            f"{path}:{line}: {name}" for line, name in empty_names(file.read_text("utf-8"), path)
        ]
    assert looked > 300
    remedy = REMEDY.format(count=len(wrong), budget=BUDGETS[folder])
    assert len(wrong) <= BUDGETS[folder], "\n".join([*wrong, remedy])


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("found = 1", ["found"]),
        ("for one, _other in pairs: pass", ["one"]),
        ("[known for known in splits]", ["known"]),
        ("def f(given, *some, told=1): self._kept = 1", ["_kept", "given", "some", "told"]),
        ("async def _made(): pass", ["_made"]),
        ("try: pass\nexcept OSError as said: pass", ["said"]),
        ("if (own := 1): pass", ["own"]),
        ("class Way: kept: int", ["Way", "kept"]),
        ("class Split:\n  def close(self, splits): print(self.kept, one, kept_index)", []),
    ],
)
def test_an_empty_name_is_counted(code, names):
    assert sorted(name for _, name in empty_names(code)) == names


def test_the_line_of_a_name_is_given_and_the_keyword_of_errors_is_exempt():
    text = "split = 1\nasked = 2\n"
    assert empty_names(text, "python/headgate/reader.py") == [(2, "asked")]
    assert empty_names(text, "python/headgate/errors.py") == []
