"""The error if headgate is imported where its native module cannot be."""

from __future__ import annotations

import os.path

from headgate.errors import WorkerPythonError


def without_native(package: str) -> WorkerPythonError:
    """Return the error for a package without its native module.

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
