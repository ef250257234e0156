"""Keyed state without numpy is a clear error."""

import subprocess
import sys


def test_a_python_without_numpy_is_told_what_to_install():
    program = (
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'numpy' else found(name)\n"
        "import headgate.stream\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "[HG-1103] headgate.stream needs numpy, which is not installed" in done.stderr
    assert 'pip install "headgate[stream]"' in done.stderr
