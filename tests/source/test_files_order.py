"""The order in which the splits of files are handed out, whatever order their footers are read in."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.contexts import FakeEnumeratorContext

from headgate.errors import OptionError, SourceError
from headgate.source import FileSource
from headgate.source.files.listing import Files
from headgate.source.files.order import natural
from headgate.source.files.split import ListedFile


class WithWatermarks(FakeEnumeratorContext):
    has_watermarks = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """40 files of two row groups: names, times of modification and sizes in three different orders."""
    folder = tmp_path_factory.mktemp("order")
    for number in range(40):
        rows = 10 + number * 7 % 40
        path = folder / f"part-{number}.parquet"
        pq.write_table(pa.table({"id": range(rows)}), path, row_group_size=rows // 2 + 1)
        os.utime(path, (1, 1000 + number * 11 % 40))
    return folder


def handed_out(source, context, chance):
    """Return the numbers of the files in the order of their splits, whose footers are read in any order."""
    enumerator = source.create_enumerator(context)
    enumerator.start()
    while context.work or not context.told_no_more:
        if context.work and chance.random() < 0.3:
            context.do(*context.work.pop(chance.randrange(len(context.work))))
        enumerator.handle_split_request(0, None)
    splits = [(int(s.path.rpartition("-")[2].partition(".")[0]), s.start) for s in context.all]
    assert len(splits) == len(set(splits)) == 80
    return splits


@pytest.mark.parametrize(
    ("order", "context", "key"),
    [
        ("name", FakeEnumeratorContext, lambda n: n),
        (None, WithWatermarks, lambda n: n),
        ("modified", FakeEnumeratorContext, lambda n: (n * 11 % 40, n)),
    ],
    ids=["by name", "by name for watermarks", "by time of modification"],
)
def test_no_split_is_before_one_of_an_earlier_file(folder, order, context, key):
    source = FileSource(folder, split_size=1, order=order)
    found = handed_out(source, context(), random.Random(3))
    assert found == sorted(found, key=lambda split: (key(split[0]), split[1]))


@pytest.mark.parametrize(
    ("order", "context"), [(None, FakeEnumeratorContext), ("size", WithWatermarks)]
)
def test_the_largest_first_without_watermarks_or_if_it_is_asked_for(folder, order, context):
    source = FileSource(folder, split_size=1, order=order)
    context = context()
    enumerator = source.create_enumerator(context)
    enumerator.start()
    context.run()
    for _ in range(80):
        enumerator.handle_split_request(0, None)
    sizes = [split.size for split in context.all]
    assert sizes == sorted(sizes, reverse=True)


def test_numbers_in_names_compare_by_their_values():
    names = [
        "a",
        "a/2",
        "a/10",
        "a-2/1",
        "b9x10",
        "b9x9",
        "b10",
        "day=2026-01-31/7",
        "007",
        "7",
        "٣",
    ]
    wanted = [
        "007",
        "7",
        "a",
        "a-2/1",
        "a/2",
        "a/10",
        "b9x9",
        "b9x10",
        "b10",
        "day=2026-01-31/7",
        "٣",
    ]
    assert sorted(names, key=natural) == wanted


@given(st.lists(st.text("a0129/-", max_size=8), unique=True))
@settings(deadline=None)
def test_every_name_has_one_place(names):
    keys = [natural(name) for name in names]
    assert len(set(keys)) == len(names)
    assert sorted(sorted(keys, reverse=True)) == sorted(keys)


def test_a_file_system_without_times_of_modification(folder, monkeypatch):
    undated = [ListedFile("memory/a", 1, None)]
    monkeypatch.setattr(Files, "listed", lambda self, *, missing_ok: undated)
    context = FakeEnumeratorContext()
    enumerator = FileSource(folder, order="modified").create_enumerator(context)
    enumerator.start()
    with pytest.raises(SourceError, match="no time of modification of memory/a"):
        context.run()


def test_an_order_that_is_none(folder):
    with pytest.raises(OptionError, match=r"order='time'"):
        FileSource(folder, order="time")
    assert FileSource.from_options({"path": str(folder), "order": "modified"})._order == "modified"
