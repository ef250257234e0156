"""per_key is refused where groups would be torn, and taken where they are whole or nothing is known."""

import pytest

import headgate as hg
from headgate.errors import OptionError
from headgate.selectors import GlobalSelector, RebalanceSelector
from headgate.spark.plan.whole_groups import check_whole_groups


def whole(group):
    return group


REDUCE = hg.per_key(["user", "day"], whole)


@pytest.mark.parametrize(
    "by",
    [
        ["user", "day"],
        ["day", "user"],
        ["USER"],
        hg.HashSelector("day"),
        hg.KeyGroupSelector("user"),
        GlobalSelector(),
        hg.BroadcastSelector(),
        whole,
    ],
)
def test_keys_of_the_groups_keep_them_whole(by):
    check_whole_groups(None, REDUCE, by, 8)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (None, "in turn"),
        (["at"], "by has 'at'"),
        (["user", "at"], "by has 'at'"),
        ([("address", "city")], "by has 'address'"),
        (hg.HashSelector(["user", "at"]), "by has 'at'"),
        (hg.KeyGroupSelector("at"), "by has 'at'"),
        (RebalanceSelector(), "looks at no key"),
    ],
)
def test_other_columns_tear_groups(by, words):
    with pytest.raises(OptionError, match=words):
        check_whole_groups(None, REDUCE, by, None)
    check_whole_groups(None, REDUCE, by, 1)
    check_whole_groups(None, whole, by, 8)


def test_map_gets_parts_of_groups():
    with pytest.raises(OptionError, match="map is a function by 'user', 'day'"):
        check_whole_groups(REDUCE, None, ["user", "day"], 8)
