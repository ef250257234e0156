"""Checks that the packages of an extra are installed, before one of them is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from headgate.errors import PackageNotFound


def require(what: str, extra: str, *packages: str) -> None:
    """Raise an error that names the extra if one of its packages is not installed; import none of them.

    Args:
        what: what needs them, such as ``"the live page"``.
        extra: name of the extra.
        packages: names under which they are imported.

    Raises:
        PackageNotFound: one is not installed.
    """
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise PackageNotFound(
            f"{what} needs packages that are not installed: {', '.join(missing)}",
            asked=what,
            have=f"Python {sys.version.partition(' ')[0]} in {sys.prefix}",
            remedy=f'pip install "headgate[{extra}]"',
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # of the package that it would be in
        return False
