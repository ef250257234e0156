"""Python imports this by itself where its folder is on PYTHONPATH: failpoints for the processes of a test.

Nothing happens without the environment variable, and nothing is imported before its time: the modules
of Headgate get their failpoints when somebody else imports them.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _Patched(importlib.abc.Loader):
    """Loads a module as its own loader does, then adds the failpoints."""

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
