"""Rules of the tree: imports only go down, unsafe code stays in its crate, files stay small.

Each rule checks a tree and returns the number of checked items and a list of violations. It runs
twice: on this repository, where it must check a minimum of items and find no violation, and on a
small tree that violates it. So no rule can pass by checking nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.floors import APART, APPLICATIONS, CLIENTS, FLOORS, LEAVES, ON_REQUEST, SPARK, WITH_NUMPY
from tests.kit.imports import circles, python_edges, python_imports, python_modules, rust_edges

ROOT = Path(__file__).resolve().parent.parent
Findings = tuple[int, list[str]]

FOLDERS = ("rust_core", "python", "tests", "benches", "scripts")
#: Maximum lines of a file without its tests.
MAX_LINES = 500

#: Names that the protocol must not use: sockets, files, threads, the clock.
IMPURE = re.compile(
    r"\bstd::(net|fs|io|thread|process|env|os)\b|\b(Instant|SystemTime)::now\b|\bmio::|\bsocket2::"
)


def sources(root: Path, *folders: str, suffix: str) -> Iterator[Path]:
    for folder in folders:
        found = sorted((root / folder).rglob(f"*{suffix}"))
        yield from (path for path in found if "target" not in path.relative_to(root).parts)


def rust_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and code of each line, without comments and strings."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield number, re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]


def python_files(root: Path) -> Iterator[tuple[Path, str]]:
    return python_modules(root / "python")


def is_below(module: str, *above: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in above)


def manifests(root: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each crate with all of its dependencies, for any target and for tests."""
    for path in sorted((root / "rust_core").glob("*/Cargo.toml")):
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = [manifest, *manifest.get("target", {}).values()]
        kinds = ("dependencies", "dev-dependencies", "build-dependencies")
        yield path.parent.name, {name for t in tables for kind in kinds for name in t.get(kind, {})}


def crates_only_depend_downwards(root: Path) -> Findings:
    looked, wrong = 0, []
    for crate, depends in manifests(root):
        for name in sorted(depends):
            looked += 1
            ours = name.removeprefix("headgate-")
            if name != ours and ours not in FLOORS[crate]:
                wrong.append(f"{crate} depends on {name}")
    return looked, wrong


def python_is_known_to_the_bindings_only(root: Path) -> Findings:
    looked, wrong = 0, []
    for crate, depends in manifests(root):
        looked += 1
        if crate != "bindings":
            wrong += [f"{crate} depends on {name}" for name in depends if "pyo3" in name]
    for path in sources(root, "rust_core", suffix=".rs"):
        if "bindings" not in path.relative_to(root).parts:
            looked += 1
            lines = [number for number, code in rust_code(path) if "pyo3" in code]
            wrong += [f"{path}:{number}: pyo3" for number in lines]
    return looked, wrong


def unsafe_stays_behind_its_fence(root: Path) -> Findings:
    looked, wrong = 0, []
    for crate in FLOORS:
        # PyO3's macros generate unsafe code in the bindings, so that crate cannot forbid it.
        forbids = crate not in {"memory", "bindings"}
        for path in sources(root, f"rust_core/{crate}", suffix=".rs"):
            looked += 1
            if path.match("src/lib.rs") and forbids:
                text = path.read_text(encoding="utf-8")
                if "#![forbid(unsafe_code)]" not in text:
                    wrong.append(f"{path}: does not forbid unsafe code")
            lines = [number for number, code in rust_code(path) if re.search(r"\bunsafe\b", code)]
            if crate != "memory":
                wrong += [f"{path}:{number}: unsafe" for number in lines]
    return looked, wrong


def the_protocol_is_pure(root: Path) -> Findings:
    looked, wrong = 0, []
    for path in sources(root, "rust_core/protocol/src", suffix=".rs"):
        looked += 1
        lines = [number for number, code in rust_code(path) if IMPURE.search(code)]
        wrong += [f"{path}:{number}: a socket, file, thread or clock" for number in lines]
    return looked, wrong


def nothing_needs_the_parts_that_only_flink_has(root: Path) -> Findings:
    looked, wrong = 0, []
    for path in sources(root, "rust_core/exchange/src", suffix=".rs"):
        if "flink" not in path.relative_to(root).parts:
            looked += 1
            lines = [number for number, code in rust_code(path) if "crate::flink" in code]
            wrong += [f"{path}:{number}: imports flink" for number in lines]
    return looked, wrong


def native_classes_are_frozen(root: Path) -> Findings:
    looked, wrong = 0, []
    for path in sources(root, "rust_core/bindings", suffix=".rs"):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"#\[pyclass(\([^\]]*\))?\]", text):
            looked += 1
            if "frozen" not in (match[1] or ""):
                wrong.append(f"{path}: {match[0]} is not frozen")
    return looked, wrong


def python_only_imports_downwards(root: Path) -> Findings:
    looked, wrong = 0, []
    for path, module in python_files(root):
        for line, name in python_imports(path, module):
            if not is_below(name, "headgate"):
                continue
            looked += 1
            if is_below(module, *LEAVES):
                leaf = next(leaf for leaf in LEAVES if is_below(module, leaf))
                if not is_below(name, leaf, *LEAVES[leaf]):
                    wrong.append(f"{path}:{line}: {module} imports {name}")
            elif not is_below(module, *SPARK, *APPLICATIONS) and (
                is_below(name, "headgate.spark", *APPLICATIONS)
            ):
                wrong.append(f"{path}:{line}: {module} imports {name}")
            for package, others in APART.items():
                if is_below(module, package) and is_below(name, *others):
                    wrong.append(f"{path}:{line}: {module} imports {name}")
    return looked, wrong


def the_wheel_needs_pyarrow_only(root: Path) -> Findings:
    looked, wrong = 0, []
    spark = {"pyspark", "py4j"}
    foreign = {"cloudpickle", "numpy", "pandas", "polars", "rich", "tqdm", *spark, *CLIENTS}
    for path, module in python_files(root):
        for line, name in python_imports(path, module):
            looked += 1
            top = name.partition(".")[0]
            excused = (
                is_below(module, *APPLICATIONS, ON_REQUEST)
                or (top in spark and is_below(module, *SPARK))
                or (top == "numpy" and is_below(module, *WITH_NUMPY))
                or is_below(module, *CLIENTS.get(top, ()))
            )
            if top in foreign and not excused:
                wrong.append(f"{path}:{line}: {module} imports {name}")
    return looked, wrong


def files_stay_small(root: Path) -> Findings:
    looked, wrong = 0, []
    for suffix in (".rs", ".py"):
        for path in sources(root, *FOLDERS, suffix=suffix):
            looked += 1
            text = path.read_text(encoding="utf-8")
            if suffix == ".rs":
                text = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, flags=re.MULTILINE)[0]
            lines = len(text.splitlines())
            if lines > MAX_LINES:
                wrong.append(f"{path}: {lines} lines, more than {MAX_LINES}")
    return looked, wrong


def no_files_import_each_other(root: Path) -> Findings:
    """Count imports for types too: a reader of the file needs the imported file as well."""
    looked, wrong = 0, []
    crates = [path.parent for path in sorted((root / "rust_core").glob("*/src"))]
    for edges in (python_edges(root / "python"), *map(rust_edges, crates)):
        looked += len(edges)
        wrong += [f"these import each other: {', '.join(circle)}" for circle in circles(edges)]
    return looked, wrong


def no_parts_of_spark_import_each_other(root: Path) -> Findings:
    """Look at the files in spark/, and at its folders with all that is in them."""
    edges: dict[str, set[str]] = {}
    for module, others in python_edges(root / "python").items():
        if is_below(module, "headgate.spark"):
            names = [name for name in (module, *others) if is_below(name, "headgate.spark")]
            part, *parts = (".".join(name.split(".")[:3]) for name in names)
            edges.setdefault(part, set()).update({*parts} - {part})
    return len(edges), [f"these import each other: {', '.join(one)}" for one in circles(edges)]


def an_impl_lives_with_its_type(root: Path) -> Findings:
    looked, wrong = 0, []
    for crate in sorted((root / "rust_core").glob("*/src")):
        code = {
            path: "\n".join(c for _, c in rust_code(path))
            for path in sources(crate, "", suffix=".rs")
        }
        defined: dict[str, set[Path]] = {}
        for path, text in code.items():
            for name in re.findall(r"\b(?:struct|enum|union)\s+(\w+)", text):
                defined.setdefault(name, set()).add(path)
        for path, text in code.items():
            for name in re.findall(
                r"^impl(?:<[^{]*?>)?\s+(?:\w+::)*(\w+)(?:<[^{]*?>)?\s*(?:where[^{]*)?\{",
                text,
                re.MULTILINE,
            ):
                looked += 1
                if (
                    name in defined
                    and path not in defined[name]
                    and "tests" not in path.relative_to(root).parts
                ):
                    wrong.append(f"{path}: the impl of {name}, which {min(defined[name])} defines")
    return looked, wrong


def nothing_is_left_for_later(root: Path) -> Findings:
    looked, wrong = 0, []
    later = re.compile(
        r"\b(TO" + r"DO|FIX" + r"ME|HA" + r"CK)\b|\b(to" + r"do|unimple" + r"mented)!"
    )
    for suffix in (".rs", ".py", ".pyi", ".sh", ".toml", ".md"):
        for path in sources(root, *FOLDERS, "docs", suffix=suffix):
            looked += 1
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if later.search(line):
                    wrong.append(f"{path}:{number}: {line.strip()}")
    return looked, wrong


#: Rule, minimum number of items it must check here, and a file or folder of files that violates it.
RULES: list[tuple[Callable[[Path], Findings], int, str, str | dict[str, str]]] = [
    (
        crates_only_depend_downwards,
        20,
        "rust_core/protocol/Cargo.toml",
        "[target.'cfg(unix)'.dependencies]\nheadgate-memory = '1'\n",
    ),
    (
        python_is_known_to_the_bindings_only,
        20,
        "rust_core/memory/Cargo.toml",
        "[dev-dependencies]\npyo3 = '1'\n",
    ),
    (
        python_is_known_to_the_bindings_only,
        20,
        "rust_core/exchange/src/gate/mod.rs",
        "use pyo3::prelude::*;\n",
    ),
    (
        unsafe_stays_behind_its_fence,
        20,
        "rust_core/record/src/page.rs",
        "fn f() { unsafe { g() } }\n",
    ),
    (unsafe_stays_behind_its_fence, 20, "rust_core/record/src/lib.rs", "pub mod page;\n"),
    (
        the_protocol_is_pure,
        10,
        "rust_core/protocol/src/frame.rs",
        "let now = Instant::now(); // the time\n",
    ),
    (
        nothing_needs_the_parts_that_only_flink_has,
        100,
        "rust_core/exchange/src/reader.rs",
        "use crate::flink::UnionInputGate;\n",
    ),
    (
        native_classes_are_frozen,
        1,
        "rust_core/bindings/src/gate.rs",
        '#[pyclass(module = "headgate")]\nstruct Gate;\n',
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/environment.py",
        "def f():\n    from .spark import exchange\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/errors.py",
        "from headgate import _native\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/source/api/split.py",
        "from headgate.source.base import reader\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/spark/tasks/kept_producer.py",
        "from headgate.spark.driver.kept import runs\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/spark/driver/kept/hosts.py",
        "from headgate.spark.driver.scheduler import shares\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/stream/operators/process.py",
        "from headgate.stream.runtime.task import StreamTask\n",
    ),
    (
        python_only_imports_downwards,
        10,
        "python/headgate/stream/runtime/task.py",
        "if TYPE_CHECKING:\n    from headgate.stream.job.worker import StreamWorker\n",
    ),
    (
        the_wheel_needs_pyarrow_only,
        20,
        "python/headgate/reader.py",
        "if True:\n    import pyspark.sql\n",
    ),
    (
        the_wheel_needs_pyarrow_only,
        20,
        "python/headgate/spark/driver/runs/run.py",
        "import numpy as np\n",
    ),
    (
        the_wheel_needs_pyarrow_only,
        20,
        "python/headgate/stream/state/keys.py",
        "import numpy as np\nimport pandas as pd\n",
    ),
    (
        the_wheel_needs_pyarrow_only,
        20,
        "python/headgate/source/numbers.py",
        "def f():\n    from confluent_kafka.admin import AdminClient\n",
    ),
    (
        an_impl_lives_with_its_type,
        100,
        "rust_core/exchange/src/gate",
        {"mod.rs": "struct Gate;\n", "more.rs": "impl Gate {\n}\n"},
    ),
    (
        no_files_import_each_other,
        200,
        "python/headgate",
        {
            "gate.py": "if TYPE_CHECKING:\n    from headgate.reader import Reader\n",
            "reader.py": "from . import gate\n",
        },
    ),
    (
        no_files_import_each_other,
        200,
        "rust_core/exchange/src",
        {
            "lib.rs": "mod gate;\nmod wait;\npub use gate::Gate;\n",
            "gate.rs": "use crate::wait::{self, Waiting};\n",
            "wait.rs": "fn wait(gate: &crate::Gate) {}\n",
        },
    ),
    (
        no_parts_of_spark_import_each_other,
        20,
        "python/headgate/spark",
        {
            "driver/runs.py": "",
            "driver/watch.py": "from headgate.spark.progress import display\n",
            "progress/display.py": "from headgate.spark.driver import runs\n",
        },
    ),
    (files_stay_small, 50, "tests/test_all.py", "\n" * (MAX_LINES + 1)),
    (nothing_is_left_for_later, 50, "python/headgate/gate.py", "pass  # TO" + "DO: later\n"),
]

UNIQUE = {rule.__name__: (rule, least) for rule, least, _, _ in RULES}


@pytest.mark.parametrize("name", UNIQUE)
def test_the_rule_holds(name):
    rule, least = UNIQUE[name]
    looked, wrong = rule(ROOT)
    assert looked >= least, f"the rule checked only {looked} items, expected at least {least}"
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("rule", "least", "path", "text"), RULES)
def test_the_rule_can_fail(rule, least, path, text, tmp_path):
    files = text if isinstance(text, dict) else {"": text}
    for name, content in files.items():
        file = tmp_path / path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    looked, wrong = rule(tmp_path)
    assert looked >= 1
    assert len(wrong) == 1, wrong


def test_all_crates_have_a_floor():
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    assert {Path(member).name for member in workspace["members"]} == set(FLOORS)
    assert {crate for crate, _ in manifests(ROOT)} == set(FLOORS)
