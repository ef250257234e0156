"""Folders and files below a path or URI, also one with options of its file system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from headgate.stream.state.locations import (
    absolute,
    below,
    filesystem_of,
    is_relative,
    relative,
    split_path,
)

S3 = "s3://bucket/job?region=eu-west-1&endpoint_override=127.0.0.1:9000"


def test_what_is_below_a_uri_has_its_query():
    found = below(S3, "tasks/1-0-count")
    assert (
        found == "s3://bucket/job/tasks/1-0-count?region=eu-west-1&endpoint_override=127.0.0.1:9000"
    )
    assert filesystem_of(found)[1] == "bucket/job/tasks/1-0-count"
    assert split_path(found) == (below(S3, "tasks"), "1-0-count")
    assert relative(found, S3) == "tasks/1-0-count"
    # The job continues with other options.
    assert relative(found, "s3://bucket/job/?region=us-east-1") == "tasks/1-0-count"
    assert relative(found, "s3://bucket/jo") == found


def test_a_trailing_slash_changes_nothing(tmp_path):
    assert below("s3://bucket/job/?region=a", "x") == "s3://bucket/job/x?region=a"
    assert absolute("s3://bucket/job/?region=a") == "s3://bucket/job?region=a"
    assert (
        filesystem_of(f"{tmp_path}/")[1] == filesystem_of(f"file://{tmp_path}/")[1] == str(tmp_path)
    )


def test_paths_have_no_query(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("what?/is") == f"{tmp_path}/what?/is"
    filesystem, path = filesystem_of("what?")
    assert isinstance(filesystem, fs.LocalFileSystem)
    assert path == f"{tmp_path}/what?"
    assert below(path, "a") == f"{tmp_path}/what?/a"


NAMES = st.text("abc?&=%.- ", min_size=1, max_size=8)
BASES = st.sampled_from(
    ["/data/what?", "s3://b", "s3://b/a", "gs://b/a/", "hdfs://n:1/a?user=x", S3]
)


@given(BASES, st.lists(NAMES.filter(lambda name: "?" not in name), min_size=1, max_size=3))
def test_a_relative_path_leads_back(base, names):
    path = below(base, "/".join(names))
    assert is_relative(relative(path, base))
    assert below(base, relative(path, base)) == path
    folder, name = split_path(path)
    assert name == names[-1]
    assert below(folder, name) == path


def test_a_file_system_that_is_unknown_is_an_error():
    with pytest.raises(ValueError, match="ftp"):
        filesystem_of("ftp://host/a")
