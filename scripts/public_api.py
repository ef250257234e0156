"""Lists the public Python API: names, signatures and attributes, read from the sources.

    public_api.py            prints what differs from tests/public_api.txt; the status is 1 if something does
    public_api.py --write    writes tests/public_api.txt, after a change that is meant

A module is public if it has ``__all__``, or if a page of docs/reference shows it. Nothing is imported, and annotations
and defaults are printed as they stand in the sources, so the list is the same under each version of Python.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python"
LIST = ROOT / "tests" / "public_api.txt"
COLUMNS = 118
#: Special methods that each class has, or that only pickle calls.
EVERYWHERE = {
    "__del__",
    "__eq__",
    "__getstate__",
    "__hash__",
    "__reduce__",
    "__repr__",
    "__setstate__",
    "__str__",
}


def file_of(module: str) -> Path | None:
    """Return the file of a module of the package, or None; the native module's is its stub."""
    path = PYTHON.joinpath(*module.split("."))
    files = (path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".pyi"))
    return next((file for file in files if file.is_file()), None)


@cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    file = file_of(module)
    if file is None:
        raise LookupError(f"there is no module {module}")
    return ast.parse(file.read_text(encoding="utf-8"))


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those below ``if`` and ``try``."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            yield from statements([*statement.body, *statement.orelse])
        else:
            yield statement


def name_of(statement: ast.stmt) -> str | None:
    """Return the name that a statement defines, if it defines one."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def definitions(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements that define a name: several for overloads, without what implements them."""
    defined = [statement for statement in statements(body) if name_of(statement) == name]
    overloads = [statement for statement in defined if "overload" in decorators(statement)]
    return overloads or defined[-1:]


def decorators(statement: ast.stmt) -> list[str]:
    """Return the decorators of a function or class, without their arguments."""
    nodes = getattr(statement, "decorator_list", [])
    return [ast.unparse(node).partition("(")[0].rpartition(".")[2] for node in nodes]


@cache
def resolved(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines what a module calls ``name``, and its name there."""
    if definitions(tree(module).body, name):
        return module, name
    for statement in statements(tree(module).body):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                if (alias.asname or alias.name) == name and statement.module.startswith("headgate"):
                    if file_of(f"{statement.module}.{alias.name}"):
                        return f"{statement.module}.{alias.name}", ""
                    return resolved(statement.module, alias.name)
    return "", name


def listed_in(module: str) -> list[str] | None:
    """Return ``__all__`` of a module, or None if it has none."""
    for statement in definitions(tree(module).body, "__all__"):
        value = getattr(statement, "value", None)
        if isinstance(value, ast.List | ast.Tuple):
            names: list[str] = ast.literal_eval(value)
            return names
    return None


def modules() -> list[str]:
    """Return the public modules in the order of the alphabet."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    shown = {
        name
        for page in pages
        for name in re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8"))
    }
    files = PYTHON.joinpath("headgate").rglob("__init__.py")
    packages = {".".join(file.parent.relative_to(PYTHON).parts) for file in files}
    return sorted(shown | {name for name in packages if listed_in(name) is not None})


def names_of(module: str) -> list[str]:
    """Return the public names of a module: ``__all__``, or else what it defines itself."""
    listed = listed_in(module)
    if listed is not None:
        return sorted(listed)
    defined = {name_of(statement) for statement in statements(tree(module).body)}
    return sorted(name for name in defined if name and not name.startswith("_"))


def is_public(name: str) -> bool:
    """Return whether a member of a class is public, or a special method that users call."""
    special = name.startswith("__") and name.endswith("__")
    return (special and name not in EVERYWHERE) or not name.startswith("_")


def wrapped(head: str, parts: list[str], tail: str) -> list[str]:
    """Return a signature in one line, or with each parameter in one of its own."""
    line = f"{head}({', '.join(parts)}){tail}"
    if len(line) <= COLUMNS or not parts:
        return [line]
    return [f"{head}(", *(f"    {part}," for part in parts), f"){tail}"]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> list[str]:
    """Return the parameters of a function as they stand in the source."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = len(plain) - len(arguments.defaults)
    defaults = [None] * missing + list(arguments.defaults)
    pairs = list(zip(plain, defaults, strict=True))
    parts = []
    for index, (argument, default) in enumerate(pairs):
        parts.append(parameter(argument, default))
        if index + 1 == len(arguments.posonlyargs):
            parts.append("/")
    if is_method and parts and "staticmethod" not in decorators(function):
        del parts[0]
        if parts[:1] == ["/"]:
            del parts[0]
    if arguments.vararg:
        parts.append(f"*{parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(parameter(argument, default))
    if arguments.kwarg:
        parts.append(f"**{parameter(arguments.kwarg, None)}")
    return parts


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """Return one parameter as PEP 8 writes it."""
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return f"{text}{' = ' if argument.annotation else '='}{ast.unparse(default)}"


def function_lines(
    path: str, function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool
) -> list[str]:
    """Return the lines of a function, method or property."""
    tail = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    kinds = decorators(function)
    if "property" in kinds or "cached_property" in kinds:
        return [f"property {path}{tail}"]
    kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    words = [word for word in ("classmethod", "staticmethod") if word in kinds]
    return wrapped(" ".join([*words, kind, path]), parameters(function, is_method=is_method), tail)


def attributes(cls: ast.ClassDef) -> dict[str, str]:
    """Return the public attributes that a class declares, or that its constructor sets."""
    names = {}
    for statement in statements(cls.body):
        name = name_of(statement)
        if name is None or not is_public(name) or name.startswith("__"):
            continue
        if isinstance(statement, ast.AnnAssign):
            default = "" if statement.value is None else " = ..."
            names[name] = f": {ast.unparse(statement.annotation)}{default}"
        elif isinstance(statement, ast.Assign):
            names[name] = ""
    for statement in definitions(cls.body, "__init__"):
        for node in ast.walk(statement):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    if is_public(name):
                        names.setdefault(name, "")
    return names


def class_lines(
    path: str, module: str, cls: ast.ClassDef, public: set[tuple[str, str]]
) -> list[str]:
    """Return the lines of a class: its bases, attributes and methods, also those of bases that are not public."""
    bases = [ast.unparse(base) for base in cls.bases]
    kinds = [
        word for word in decorators(cls) if word in {"dataclass", "final", "runtime_checkable"}
    ]
    lines = [" ".join([*kinds, "class", path + (f"({', '.join(bases)})" if bases else "")])]
    return lines + member_lines(module, cls, public, set())


def member_lines(
    module: str, cls: ast.ClassDef, public: set[tuple[str, str]], above: set[str]
) -> list[str]:
    """Return the lines of members, without those that a class ``above`` overrides."""
    lines = []
    present = attributes(cls)
    methods = sorted(
        {
            name
            for statement in statements(cls.body)
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            if (name := name_of(statement)) and is_public(name)
        }
    )
    lines += [f"    .{name}{text}" for name, text in present.items() if name not in above]
    for name in methods:
        if name in above:
            continue
        for function in definitions(cls.body, name):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                text = function_lines(f".{name}", function, is_method=True)
                lines += [f"    {line}" for line in text]
    above = {*above, *present, *methods}
    for base in cls.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        if not isinstance(plain, ast.Name):
            continue
        home = resolved(module, plain.id)
        if home[0] and home not in public:
            for definition in definitions(tree(home[0]).body, home[1]):
                if isinstance(definition, ast.ClassDef):
                    lines += member_lines(home[0], definition, public, above)
    return lines


def lines_of(path: str, module: str, name: str, public: set[tuple[str, str]]) -> list[str]:
    """Return the lines of one public name."""
    lines = []
    for statement in definitions(tree(module).body, name):
        if isinstance(statement, ast.ClassDef):
            lines += class_lines(path, module, statement, public)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            lines += function_lines(path, statement, is_method=False)
            options = statement.args.kwarg and statement.args.kwarg.annotation
            match options:
                case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=table)):
                    home = resolved(module, table)
                    if home not in public:
                        lines += lines_of(f"{path}.{table}", *home, public)
        elif isinstance(statement, ast.AnnAssign):
            lines.append(f"{path}: {ast.unparse(statement.annotation)}")
        elif isinstance(statement, ast.Assign):
            line = f"{path} = {ast.unparse(statement.value)}"
            lines.append(line if len(line) <= COLUMNS else path)
    return lines


def listing() -> str:
    """Return the whole list. A name that two modules have is written out at the first one."""
    places: dict[tuple[str, str], str] = {}
    for module in modules():
        for name in names_of(module):
            places.setdefault(resolved(module, name), f"{module}.{name}")
    public = set(places)
    lines = []
    for module in modules():
        lines += ["", f"# {module}", ""]
        for name in names_of(module):
            path, home = f"{module}.{name}", resolved(module, name)
            if not home[0]:
                raise LookupError(f"{path} is public, and no module of headgate defines it")
            if not home[1]:
                lines.append(f"module {path} = {home[0]}")
            elif places[home] != path:
                lines.append(f"{path} = {places[home]}")
            else:
                lines += lines_of(path, *home, public)
    return "\n".join(lines[1:]) + "\n"


def main() -> int:
    """Write the list, or compare it; return the exit status."""
    current = listing()
    if "--write" in sys.argv[1:]:
        LIST.write_text(current, encoding="utf-8")
        return 0
    stored = LIST.read_text(encoding="utf-8") if LIST.is_file() else ""
    difference = difflib.unified_diff(
        stored.splitlines(), current.splitlines(), LIST.name, "the sources", lineterm="", n=6
    )
    for line in difference:
        print(line)
    return 0 if stored == current else 1


if __name__ == "__main__":
    sys.exit(main())
