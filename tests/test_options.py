"""The table of options, and the parsers, error texts, types and reference page made from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate._directories import local_directories
from headgate._option_table import OPTIONS, Option
from headgate._options import describe, parse, resolve
from headgate._units import duration_text, parse_duration, parse_size, parse_timeout, size_text
from headgate.errors import OptionError
from headgate.options import Compression, EnvironmentOptions, SameHostLink
from headgate.spark.options import ExchangeOptions, Mode, Progress, Read

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        (17, 17),
        ("17b", 17),
        ("256k", 256 << 10),
        ("256KB", 256 << 10),
        (" 64m ", 64 << 20),
        ("64 mb", 64 << 20),
        ("3g", 3 << 30),
        ("2T", 2 << 40),
    ],
)
def test_sizes_are_read_as_spark_reads_them(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "m", "-1m", "1.5g", "64 apples", "64mm", "1e6", "0x10", "٦٤m", None, 1.5, True]
)
def test_other_sizes_are_refused(text):
    with pytest.raises((TypeError, ValueError), match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500us", 0.0005),
        ("100ms", 0.1),
        ("10s", 10.0),
        ("10", 10.0),
        (10, 10.0),
        (0.25, 0.25),
        ("5m", 300.0),
        ("5min", 300.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
    ],
)
def test_durations_are_read_as_spark_reads_them(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-1", -1.0), (-1, -1.0), ("0", 0.0), ("0ms", 0.0), (0, 0.0), ("1ms", 0.001), (" 2s ", 2.0)],
)
def test_a_timeout_is_a_duration_or_never(text, seconds):
    assert parse_timeout(text) == pytest.approx(seconds)
    assert describe("buffer_timeout", parse_timeout(-1)) == "-1"


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.5s", "10 lightyears", None, True])
def test_other_durations_are_refused(text):
    with pytest.raises((TypeError, ValueError), match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 1 << 50))
def test_a_size_is_written_as_it_is_read(size):
    assert parse_size(size_text(size)) == size


@given(st.integers(1, 10**6))
def test_a_duration_is_written_as_it_is_read(milliseconds):
    seconds = milliseconds / 1000
    if seconds < 1 or (milliseconds % 1000 == 0 and milliseconds < 10**6):
        assert parse_duration(duration_text(seconds)) == pytest.approx(seconds)


def test_the_defaults():
    options = resolve("environment", {}, environ={})
    assert dict(options) == {
        "memory": 64 << 20,
        "segment_size": 256 << 10,
        "max_record_size": 256 << 20,
        "buffers_per_channel": 2,
        "floating_buffers_per_gate": 8,
        "max_buffers_per_channel": 10,
        "max_overdraft_buffers": 5,
        "buffer_timeout": 0.1,
        "buffer_debloat_enabled": False,
        "buffer_debloat_target": 1.0,
        "buffer_debloat_period": 0.2,
        "buffer_debloat_samples": 20,
        "buffer_debloat_threshold_percentages": 25,
        "min_segment_size": 256,
        "starting_segment_size": None,
        "spill_threshold": 5 << 20,
        "temp_directories": None,
        "compression": "none",
        "max_spill_size": 0,
        "listen": "127.0.0.1:0",
        "partition_request_timeout": 10.0,
        "idle_timeout": 10.0,
        "same_host_link": "auto",
        "tls": "auto",
        "tls_ca": None,
        "tls_certificate": None,
        "tls_key": None,
        "trace": "off",
    }
    assert set(options.sources.values()) == {"default"}
    assert describe("segment_size", options["segment_size"]) == "256k"


def test_call_over_session_over_environment_over_default():
    call = {"segment_size": "1m"}
    conf = {"spark.headgate.segmentSize": "2m", "spark.sql.shuffle.partitions": "4"}
    environ = {"HEADGATE_SEGMENT_SIZE": "4m"}
    for given_call, given_conf, given_environ, size, source in [
        (call, conf, environ, 1 << 20, "argument"),
        ({"segment_size": None}, conf, environ, 2 << 20, "spark.headgate.segmentSize"),
        ({}, {}, environ, 4 << 20, "HEADGATE_SEGMENT_SIZE"),
        ({}, None, {}, 256 << 10, "default"),
    ]:
        options = resolve("exchange", given_call, given_conf, given_environ)
        assert (options["segment_size"], options.sources["segment_size"]) == (size, source)


def test_an_unknown_option_gets_close_matches():
    with pytest.raises(OptionError, match="'segmentsize' is no option of exchange") as caught:
        resolve("exchange", {"segmentsize": "1m"}, environ={})
    assert caught.value.details["close"][0] == "segment_size"
    assert "do one  segment_size" in str(caught.value)


def test_an_unknown_environment_variable_gets_close_matches():
    with pytest.raises(OptionError, match="'HEADGATE_MEMROY' is no environment variable") as caught:
        resolve("exchange", {}, {}, {"HEADGATE_MEMROY": "1m"})
    assert "HEADGATE_MEMORY" in str(caught.value)
    resolve("exchange", {}, {}, {"HEADGATE_TEST_SEED": "1", "HEADGATE_UI_LINK": "x"})


def test_an_option_of_another_call_is_unknown():
    with pytest.raises(OptionError, match="is no option of ShuffleEnvironment"):
        resolve("environment", {"mode": "kept"}, environ={})


@pytest.mark.parametrize("key", ["spark.headgate.segment_size", "spark.headgate.segmentsize"])
def test_a_conf_is_camel_case_only(key):
    with pytest.raises(OptionError, match=r"do one {2}spark\.headgate\.segmentSize"):
        resolve("exchange", {}, {key: "1m"}, {})


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        ("/a", ("/a",)),
        (" /a ,b/c", ("/a", "b/c")),
        (Path("/a,b"), ("/a,b",)),
        (["/a", Path("b")], ("/a", "b")),
        (("/a",), ("/a",)),
    ],
)
def test_directories_are_a_path_or_several(raw, paths):
    assert (
        resolve("environment", {"temp_directories": raw}, environ={})["temp_directories"] == paths
    )


@pytest.mark.parametrize(
    ("raw", "value"), [(True, True), ("true", True), (" False ", False), ("FALSE", False)]
)
def test_booleans_are_written_in_any_case(raw, value):
    options = resolve("environment", {"buffer_debloat_enabled": raw}, environ={})
    assert options["buffer_debloat_enabled"] is value


@pytest.mark.parametrize(
    ("environ", "paths"),
    [
        ({}, ()),
        ({"SPARK_LOCAL_DIRS": "/a, /b,"}, ("/a", "/b")),
        ({"SPARK_EXECUTOR_DIRS": "/a:/b", "LOCAL_DIRS": "/c"}, ("/a", "/b")),
        ({"LOCAL_DIRS": "/c,/d", "SPARK_LOCAL_DIRS": " "}, ("/c", "/d")),
        ({"LOCAL_DIRS": "/c", "SPARK_LOCAL_DIRS": "/e"}, ("/e",)),
    ],
)
def test_sparks_local_directories_are_found(environ, paths):
    assert local_directories(environ) == paths


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("temp_directories", "/a,,/b", "temp_directories='/a,,/b' is not a list of paths"),
        ("temp_directories", 7, "temp_directories=7 is neither a path nor a list of paths"),
        ("memory", "64 apples", "memory='64 apples' is not a size"),
        ("memory", "1k", "memory='1k' is below the limit of 64k"),
        ("segment_size", "1g", "segment_size='1g' is above the limit of 64m"),
        ("buffer_timeout", "-2", "buffer_timeout='-2' is below the limit of -1"),
        ("buffer_timeout", "2m", "buffer_timeout='2m' is above the limit of 1m"),
        ("consumer_timeout", "soon", "consumer_timeout='soon' is not a duration"),
        ("num_partitions", 0, "num_partitions=0 is below the limit of 1"),
        ("num_partitions", "two", "num_partitions='two' is not a whole number"),
        ("buffer_debloat_enabled", 1, "buffer_debloat_enabled=1 is neither true nor false"),
        ("buffer_debloat_enabled", "yes", "buffer_debloat_enabled='yes' is neither true nor false"),
        ("num_partitions", True, "num_partitions=True is not a whole number"),
        ("num_partitions", 1.5, "num_partitions=1.5 is not a whole number"),
        ("mode", "kepd", "mode='kepd' is not one of its values"),
        ("mode", 7, "mode=7 is not one of its values"),
    ],
)
def test_a_wrong_value_names_option_value_and_limit(name, raw, said):
    with pytest.raises(OptionError) as caught:
        resolve(OPTIONS[name].scopes[0], {name: raw}, environ={})
    text = str(caught.value)
    assert text.startswith(f"[HG-1001] {said}")
    assert f"asked   {name}={raw!r} (argument)" in text
    assert f"{name} takes {OPTIONS[name].limits}" in text
    assert caught.value.details == {"option": name, "value": raw, "source": "argument"}


def test_a_misspelt_choice_gets_the_close_one():
    with pytest.raises(OptionError, match=r'do one {2}mode="kept"\n'):
        parse(OPTIONS["mode"], "kepd")


@pytest.mark.parametrize(
    ("call", "conf", "environ", "source"),
    [
        ({"mode": "pipelined"}, {}, {}, "argument"),
        ({}, {"spark.headgate.mode": "pipelined"}, {}, "spark.headgate.mode"),
        ({}, {}, {"HEADGATE_MODE": "pipelined"}, "HEADGATE_MODE"),
    ],
)
def test_a_value_that_there_was_once_says_what_replaces_it(call, conf, environ, source):
    with pytest.raises(OptionError, match="mode='pipelined' is not one of its values") as caught:
        resolve("exchange", call, conf, environ)
    assert caught.value.remedy == (
        "headgate.stream.stream(source) ... .start(spark=spark) · omit mode"
    )
    assert f"({source})" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "conf", "environ"),
    [
        ({"heartbeat_timeout": "2s"}, {}, {}),
        ({}, {"spark.headgate.heartbeatTimeout": "2s"}, {}),
        ({}, {}, {"HEADGATE_HEARTBEAT_TIMEOUT": "2s"}),
    ],
)
def test_an_option_that_there_was_once_says_what_to_do(call, conf, environ):
    with pytest.raises(OptionError) as caught:
        resolve("exchange", call, conf, environ)
    assert caught.value.remedy.startswith("omit heartbeat_timeout")


@pytest.mark.parametrize("raw", ["127.0.0.1", ":80", "host:", "host:x", "host:70000", 80])
def test_an_address_has_host_and_port(raw):
    with pytest.raises(OptionError, match="is not an address"):
        resolve("environment", {"listen": raw}, environ={})
    assert resolve("environment", {"listen": "[::1]:0"}, environ={})["listen"] == "[::1]:0"


def test_a_wrong_value_says_where_it_came_from():
    with pytest.raises(OptionError, match=r"asked {3}memory='x' \(spark.headgate.memory\)"):
        resolve("exchange", {}, {"spark.headgate.memory": "x"}, {})
    with pytest.raises(OptionError, match=r"asked {3}memory='x' \(HEADGATE_MEMORY\)"):
        resolve("exchange", {}, {}, {"HEADGATE_MEMORY": "x"})


def test_a_segment_is_not_larger_than_the_pool():
    with pytest.raises(OptionError, match="segment_size=2m is larger than memory=1m"):
        resolve("environment", {"memory": "1m", "segment_size": "2m"}, environ={})


def test_a_schema_is_passed_through_and_comes_from_the_call_only():
    options = resolve(
        "exchange", {"map_schema": "a int"}, {"spark.headgate.mapSchema": "b int"}, {}
    )
    assert options["map_schema"] == "a int"
    assert resolve("exchange", {}, {}, {"HEADGATE_MAP_SCHEMA": "b int"})["map_schema"] is None


def test_the_table_is_sound():
    assert len(OPTIONS) >= 8
    for name, option in OPTIONS.items():
        assert name == option.name
        assert option.doc.endswith(".")
        assert option.scopes
        assert "_" not in option.conf
        if option.default is not None:
            parse(option, option.default)


@pytest.mark.parametrize(
    ("scope", "types", "parameters"),
    [
        ("environment", EnvironmentOptions, set()),
        ("exchange", ExchangeOptions, {"num_partitions", "parallelism"}),
    ],
)
def test_the_types_of_options_name_those_of_the_table(scope, types, parameters):
    names = {name for name, option in OPTIONS.items() if scope in option.scopes}
    assert types.__optional_keys__ | parameters == names


def test_the_types_of_choices_have_the_values_of_the_table():
    assert get_args(Compression) == OPTIONS["compression"].choices
    assert get_args(SameHostLink) == OPTIONS["same_host_link"].choices
    assert get_args(Mode) == OPTIONS["mode"].choices
    assert get_args(Progress) == OPTIONS["progress"].choices
    assert get_args(Read) == OPTIONS["read"].choices


def test_no_option_can_hold_a_secret():
    assert not [name for name in OPTIONS if "secret" in name]


def test_the_reference_page_is_current(monkeypatch):
    spec = importlib.util.spec_from_file_location("page", ROOT / "scripts/options_page.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()
    monkeypatch.setitem(
        OPTIONS, "new", Option("new", "int", 1, ("exchange",), minimum=1, doc="New.")
    )
    assert "HEADGATE_NEW" in script.page()
    assert script.PAGE.read_text(encoding="utf-8") != script.page()
