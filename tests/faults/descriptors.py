"""A process without a free descriptor."""

import contextlib
import os
import resource
from pathlib import Path


@contextlib.contextmanager
def no_descriptor_left():
    """Leave this process without a free descriptor."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    filler = []
    try:
        with contextlib.suppress(OSError):
            while True:
                filler.append(os.dup(0))
        assert filler
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in filler:
            os.close(number)
