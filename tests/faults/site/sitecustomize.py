"""Adds failpoints to the processes of a test. Python imports it if its folder is on PYTHONPATH.

It does nothing without the environment variable. It imports no module of Headgate itself: a module
gets its failpoints when other code imports it.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _Patched(importlib.abc.Loader):
    """Loads a module with its own loader, then adds the failpoints."""

    def __init__(self, loader, patch):
        self._loader = loader
        self._patch = patch

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._patch(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches):
        self._patches = patches

    def find_spec(self, name, path, target=None):
        if name not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Patched(spec.loader, self._patches[name])
        return spec


if "HEADGATE_TEST_FAILPOINTS" in os.environ:
    from control_failpoints import PATCHES

    sys.meta_path.insert(0, _Finder(PATCHES))
