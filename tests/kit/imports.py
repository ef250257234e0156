"""The imports between files, in Python and in Rust, and the circles among them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

Module = tuple[str, ...]
#: Names of modules with test code in a crate.
TESTS = re.compile(r"tests?$|model$|simulator$|instructions$")


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of names that reach each other, found by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(edges.get(name, ())):
            if other not in number:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], number[other])
        if lowest[name] == number[name]:
            at = stack.index(name)
            group, stack[at:] = sorted(stack[at:]), []
            if len(group) > 1:
                found.append(group)

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


# --- Python ---


def python_imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import in a Python file, also nested and for types."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def python_modules(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each Python file below a folder with its module name."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_edges(folder: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports. A module's own packages do not count."""
    files = {module: path for path, module in python_modules(folder)}
    edges: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        for _, imported in python_imports(path, module):
            name = imported
            while name and name not in files:
                name = name.rpartition(".")[0]
            if name and name != module and not module.startswith(f"{name}."):
                edges[module].add(name)
    return edges


# --- Rust ---


class Crate:
    """The modules of one crate without its tests, and the modules that each of them names."""

    def __init__(self, source: Path) -> None:
        self._code = {module: rust_code(path) for module, path in rust_modules(source)}
        #: (module, re-exported name) -> module and rest of the path that the name refers to.
        self._exported: dict[tuple[Module, str], tuple[Module, list[str]]] = {}
        for module, code in self._code.items():
            for uses in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", code):
                for path in spelled_out(uses):
                    if place := self._place(module, path):
                        self._exported[module, path.rpartition("::")[2]] = place

    def edges(self) -> dict[Module, set[Module]]:
        """Return the modules that each module names, apart from re-exports."""
        return {module: self._named(module) - {module} for module in self._code}

    def _named(self, module: Module) -> set[Module]:
        code = re.sub(r"\bpub(?:\([^)]*\))?\s+use\s+[^;]+;", "", self._code[module])
        paths = [
            path for uses in re.findall(r"\buse\s+([^;]+);", code) for path in spelled_out(uses)
        ]
        code = re.sub(r"\buse\s+[^;]+;", "", code)
        paths += re.findall(r"\b((?:crate|super)(?:::\w+)+)", code)
        places = (self._place(module, path) for path in paths)
        return {self._defining(*place) for place in places if place}

    def _place(self, module: Module, path: str) -> tuple[Module, list[str]] | None:
        """Return the module at which a path starts and the rest of the path; None if external."""
        first, *rest = path.split("::")
        if first == "crate":
            return (), rest
        if first == "self":
            return module, rest
        if first == "super":
            start = module[:-1]
            while rest and rest[0] == "super":
                start, rest = start[:-1], rest[1:]
            return start, rest
        return (module, [first, *rest]) if (*module, first) in self._code else None

    def _defining(self, module: Module, path: list[str], hops: int = 0) -> Module:
        """Return the module that defines the item of a path, resolving re-exports."""
        while path and (*module, path[0]) in self._code:
            module, path = (*module, path[0]), path[1:]
        if path and hops < 10 and (module, path[0]) in self._exported:
            return self._defining(*self._exported[module, path[0]], hops + 1)
        return module


def rust_modules(source: Path) -> Iterator[tuple[Module, Path]]:
    """Yield each module of a crate with its file, apart from tests."""
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        if not any(TESTS.search(part) for part in parts):
            yield parts[:-1] if parts[-1] in {"mod", "lib"} else parts, path


def rust_code(path: Path) -> str:
    """Return the code of a file without comments and without its test module."""
    lines = (line.split("//")[0] for line in path.read_text(encoding="utf-8").splitlines())
    return re.split(r"#\[cfg\((?:all\()?test", "\n".join(lines))[0]


def spelled_out(uses: str) -> list[str]:
    """Return the separate paths of a ``use`` with braces."""
    uses = re.sub(r"\s+", " ", uses).strip()
    braces = re.match(r"^(.*?)\{(.*)\}$", uses)
    if not braces:
        return [uses.split(" as ")[0].strip()]
    parts, depth = [""], 0
    for letter in braces[2]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [
        path for part in parts if part.strip() for path in spelled_out(braces[1] + part.strip())
    ]


def rust_edges(crate: Path) -> dict[str, set[str]]:
    """Return the files that each file of a crate imports, named by module."""
    edges = Crate(crate / "src").edges()

    def name(module: Module) -> str:
        return "::".join((crate.name, *module))

    return {name(module): {name(other) for other in others} for module, others in edges.items()}
