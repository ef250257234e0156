"""ARCHITECTURE.md is short, and its table of folders agrees with the imports."""

import re
from functools import cache
from pathlib import Path

from tests.floors import APPLICATIONS
from tests.kit.imports import python_imports, python_modules
from tests.test_architecture import is_below, manifests

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
WORDS = 2000
ROW = re.compile(r"^( {4}| {8})([\w/]+)/ +(.*?) *\bimports (.*)$", re.MULTILINE)
#: The folder of the modules that are in no other one.
REST = "python/headgate"
#: Importing module -> the modules further up that it may import.
UPWARDS = {
    "headgate.stream.api.frames": ("headgate.spark.streams",),
    "headgate.stream.api.job": ("headgate.spark.streams",),
}


def folders(page):
    """Return each folder of the table, in order, with the words of its last column."""
    table, above = {}, ""
    for indent, name, _, imported in ROW.findall(page):
        above = above if len(indent) == 8 else name
        folder = f"{above}/{name}" if len(indent) == 8 else name
        table[folder] = set(re.findall(r"[\w.]+", imported))
    return table


def allowed(folder, table):
    """Return the folders that a folder may import, by the names of its line and of theirs."""
    names, order = [*table[folder]], list(table)
    if folder.count("/") == 3:  # python/headgate/stream/job is also a part of stream
        names += table[folder.rpartition("/")[0]]
    below = {
        other
        for other in order[order.index(folder) + 1 :]
        for name in names
        if "headgate" in names
        or other.startswith(f"{folder}/")
        or other.endswith(f"/{name.rpartition('.')[2]}")
    }
    return {folder, *below, *(further for other in below for further in allowed(other, table))}


def folder_of(module, table):
    path = "python/" + module.replace(".", "/")
    inside = [folder for folder in table if path == folder or path.startswith(f"{folder}/")]
    return max(inside, key=len, default=None)


@cache
def imports():
    """Return file, line, importing module and imported name of each import in python/."""
    modules = python_modules(ROOT / "python")
    return [
        (path, line, module, name)
        for path, module in modules
        for line, name in python_imports(path, module)
    ]


def wrong_imports(page):
    """Return the number of imports between folders, and those that the table does not allow."""
    table = folders(page)
    within = {folder: allowed(folder, table) for folder in table}
    looked, wrong = 0, []
    for path, line, module, name in imports():
        if is_below(module, *APPLICATIONS) or module == "headgate":
            continue
        begin, end = folder_of(module, table), folder_of(name, table)
        if end in {None, begin, REST}:
            continue
        looked += 1
        up = [above for below, above in UPWARDS.items() if is_below(module, below)]
        if end not in within[begin] and not any(is_below(name, *above) for above in up):
            wrong.append(f"{path}:{line}: {begin} imports {end}")
    for crate, depends in manifests(ROOT):
        ours = {name.removeprefix("headgate-") for name in depends if name.startswith("headgate-")}
        looked += len(ours)
        named = table[f"rust_core/{crate}"]
        wrong += [f"rust_core/{crate} imports {name}" for name in ours - named]
    return looked, wrong


def test_each_folder_imports_only_those_that_its_line_names_and_that_are_further_down():
    page = PAGE.read_text(encoding="utf-8")
    looked, wrong = wrong_imports(page)
    assert looked > 200
    assert wrong == []
    without = page.replace("imports control, errors", "imports errors", 1)
    assert without != page
    assert any(
        "observe imports python/headgate/control" in line for line in wrong_imports(without)[1]
    )


def test_each_folder_of_the_table_exists_and_each_package_and_crate_is_named():
    page = PAGE.read_text(encoding="utf-8")
    table = folders(page)
    assert len(table) > 20
    assert [folder for folder in table if not (ROOT / folder).is_dir()] == []
    crates = {f"rust_core/{crate}" for crate, _ in manifests(ROOT)}
    assert crates - table.keys() == set()
    packages = {path.parent for path in (ROOT / REST).glob("*/__init__.py")}
    assert len(packages) > 8
    assert [
        path.name
        for path in packages
        if f"{REST}/{path.name}" not in table and f"`{path.name}/`" not in page
    ] == []


def test_the_page_is_short():
    assert len(PAGE.read_text(encoding="utf-8").split()) <= WORDS
