"""A network, a cluster on it and the packed environment, created once and removed at the end."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# The tests share modules, and pytest's importlib mode does not add their folder to the path.
sys.path.append(str(Path(__file__).parent))

from packed_environment import build_wheel, pack
from standalone_cluster import DRIVER, MASTER, WORKERS, Cluster, Session
from tests.kit.namespaces import PREFIX, Network, why_not

WHY_NOT = why_not()


@pytest.fixture(scope="module")
def cluster():
    """Yield a master and two workers, each on its own host. The driver's host is empty."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    # The folder is large, and pytest would keep its own folders for three runs.
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        (folder / "wheel").mkdir()
        archive = pack(folder, build_wheel(folder / "wheel"))
        network = Network(MASTER, *WORKERS, DRIVER)
        with network:
            made = Cluster(network, folder, archive)
            made.start()
            yield made
        assert network.names() == []
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def session(cluster):
    """Yield a Spark session on the driver's host."""
    session = Session(cluster)
    try:
        answer = session.hear(180)
        assert answer is not None
        assert answer["said"] == "started"
        yield session
    finally:
        session.close()
