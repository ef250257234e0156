"""Sources by name, from options with lower-case names as Spark passes them."""

from __future__ import annotations

import pytest

from headgate.errors import OptionError
from headgate.source import FileSource, NumberSequenceSource
from headgate.source.registry import source_from_options


class Counted(NumberSequenceSource):
    """A registered source that reads its options by name."""

    @classmethod
    def from_options(cls, options):
        return cls(0, int(options["howMany"]), column=options.get("columnName", "id"))


@pytest.mark.parametrize("name", ["howMany", "howmany", "HOWMANY"])
def test_the_case_of_an_option_does_not_count_for_a_callers_class(name):
    source = source_from_options({"source": "own", name: "9"}, {"own": Counted})
    assert source.name == "NumberSequenceSource(0, 9)"
    assert source.schema.names == ["id"]


def test_a_path_or_several_are_files_without_a_name():
    for options in ({"path": "/data"}, {"paths": '["/data", "/more"]'}):
        source = source_from_options(options)
        assert isinstance(source, FileSource)
        assert source.name.startswith("FileSource(parquet, /data")


def test_what_is_no_name_names_those_that_look_like_it():
    with pytest.raises(OptionError, match="there is no source 'parqet'") as caught:
        source_from_options({"source": "parqet", "path": "/data"})
    assert 'option("source", "parquet")' in caught.value.remedy
