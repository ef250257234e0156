"""Only builds that ask for failpoints contain them."""

import re
from pathlib import Path

import pytest

from headgate import _native

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = re.compile(r'fail_point!\("([a-z._]+)"')


def names():
    """Return the names of all failpoints in the sources."""
    sources = (ROOT / "rust_core").glob("*/src/**/*.rs")
    text = "".join(source.read_text() for source in sources)
    return NAME.findall(text)


def test_the_module_does_not_contain_a_failpoint():
    if hasattr(_native, "set_failpoints"):
        pytest.skip("this module was built with failpoints")
    module = Path(_native.__file__).read_bytes()
    assert b"the I/O thread panicked" in module, "the search does not find strings of the module"
    found = names()
    assert len(found) > 30
    assert len(set(found)) == len(found), "two failpoints have the same name"
    assert [name for name in found if name.encode() in module] == []
    assert b"HEADGATE_FAILPOINTS" not in module
    assert not hasattr(_native, "failpoint_hits")


def test_no_script_builds_a_wheel_with_failpoints():
    build = [ROOT / "pyproject.toml", ROOT / "scripts/wheel.sh", ROOT / "scripts/develop.sh"]
    assert all(path.exists() for path in build)
    assert [path.name for path in build if "failpoints" in path.read_text()] == []


def test_production_code_in_python_knows_no_failpoint():
    sources = list((ROOT / "python").rglob("*.py"))
    assert len(sources) > 100
    assert [str(s) for s in sources if "failpoint" in s.read_text().lower()] == []
