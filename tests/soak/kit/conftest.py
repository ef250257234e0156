"""An application whose processes may be killed."""

import pytest
from tests.kit import fixtures


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory):
    """Yield an application with two executors of two slots, for the tests of one module."""
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "another module left its session open"
    yield from fixtures.session_on("local-cluster[2,2,1024]", tmp_path_factory.mktemp("spark"))
