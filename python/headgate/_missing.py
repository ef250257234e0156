"""The errors without the native module, and its stand-in in the wheel ``py3-none-any``, which has none.

In that wheel ``headgate._native`` has a version, and takes all other names from :func:`absent`. So the whole package can be
imported, and the error comes with the first use of the native module. Decision: ADR 0063.
"""

from __future__ import annotations

import os.path
from typing import Any, NoReturn

from headgate.errors import NativeModuleNotFound, WorkerPythonError


def without_native(package: str) -> WorkerPythonError:
    """Return the error for a package that has neither the native module nor a stand-in.

    Args:
        package: path of the package.
    """
    if os.path.isdir(package):  # noqa: PTH112 - pathlib takes longer to import
        return WorkerPythonError(
            f"headgate has no native module in {package}",
            asked="import headgate",
            remedy='pip install headgate · "make develop" in a clone',
        )
    return WorkerPythonError(
        "headgate was imported from an archive, and Python loads no native code from one",
        asked=f"import of {package}",
        have="a wheel or zip that was given by --py-files, addPyFile or spark.submit.pyFiles",
        remedy="pip install the wheel on every host · an environment with it, by spark.archives",
    )


class Absent(type):
    """The type of what stands for the classes and functions of the native module: each use is an error."""

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise the error."""
        raise native_module_not_found(cls.__name__)

    def __getattr__(cls, name: str) -> NoReturn:
        """Raise the error, but for names that Python asks for."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise native_module_not_found(f"{cls.__name__}.{name}")


def absent(name: str) -> Absent:
    """Return what stands for a class or function of the native module.

    Raises:
        AttributeError: Python itself asks for the name.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent(name, (), {})


def has_native() -> bool:
    """Return False in the wheel without the native module."""
    from headgate import _native  # noqa: PLC0415 - it imports this module where it is a stand-in

    return not isinstance(_native.Environment, Absent)


def need_native(call: str) -> None:
    """Refuse a call that the wheel without the native module cannot carry out.

    Args:
        call: the name of the call.

    Raises:
        NativeModuleNotFound: the wheel has no native module.
    """
    if not has_native():
        raise native_module_not_found(call)


def native_module_not_found(call: str, part: str = "") -> NativeModuleNotFound:
    """Return the error for a call that needs the native module.

    Args:
        call: its name, or one in the native module.
        part: of the call, which needs the module.
    """
    import platform  # noqa: PLC0415 - only an error needs it

    from headgate import _native  # noqa: PLC0415 - see has_native()

    have = f"headgate {_native.__version__} py3-none-any, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return NativeModuleNotFound(
        f"{call} needs the native module of Headgate, and the installed wheel has none",
        asked=part or call,
        have=have,
    )
