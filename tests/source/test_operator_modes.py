"""Modes, messages and snapshots of an operator: after Flink's SourceOperatorTest."""

import threading

import pytest
from tests.kit.operator import (
    END,
    MORE,
    NOTHING,
    Part,
    Rig,
    ScriptedSource,
    emit,
    parts,
    release,
)

from headgate.errors import ClosedError, NotBuiltError, SourceError, StateVersionError
from headgate.source import MAX_WATERMARK, MIN_WATERMARK, OperatingMode, SourceEvent
from headgate.source import WatermarkStrategy as Strategy
from headgate.source.watermark.output import OperatorOutput


def test_spec_section_13_6_modes_from_start_to_end():
    rig = Rig(start=False)
    assert rig.operator.mode is OperatingMode.OUTPUTS_UNINITIALISED
    rig.operator.start()
    assert rig.operator.mode is OperatingMode.READING
    rig.operator.no_more_splits()
    assert rig.run(emit(1)) == [1]
    assert rig.operator.mode is OperatingMode.DATA_FINISHED
    assert rig.watermark == MAX_WATERMARK


@pytest.mark.parametrize("failing", ["start", "add_splits", "handle_source_event"])
def test_after_an_error_of_the_reader_nothing_is_read_or_stored(failing, monkeypatch):
    rig = Rig(start=False)

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(rig.reader, failing, fail)
    calls = {
        "start": rig.operator.start,
        "add_splits": lambda: rig.operator.add_splits(3, parts("a")),
        "handle_source_event": lambda: rig.operator.source_event(None),
    }
    if failing != "start":
        rig.operator.start()
    with pytest.raises(SourceError) as first:
        calls[failing]()
    later = (calls[failing], rig.operator.poll, rig.operator.no_more_splits)
    for call in (*later, lambda: rig.operator.snapshot(1)):
        with pytest.raises(SourceError) as again:
            call()
        assert again.value is first.value
    assert rig.operator.timeout() is None
    rig.operator.close()


def test_spec_section_13_6_nothing_reaches_a_reader_before_the_start():
    rig = Rig(start=False)
    for call in (
        rig.operator.poll,
        rig.operator.no_more_splits,
        lambda: rig.operator.add_splits(3, parts("a")),
        lambda: rig.operator.snapshot(1),
    ):
        with pytest.raises(ClosedError, match="not started"):
            call()
    assert rig.reader.calls == []
    rig.operator.start()
    rig.operator.start()
    rig.operator.add_splits(3, parts("a"))
    assert rig.reader.calls == ["start", ("add", ["a"])]


def test_spec_section_13_6_outputs_are_there_before_the_reader_has_its_splits():
    seen = []
    rig = Rig(start=False)

    def add_splits(splits):
        seen.extend(rig.operator._output.splits)

    rig.reader.add_splits = add_splits
    rig.operator.start()
    rig.operator.add_splits(3, parts("a", "b"))
    rig.drain()
    assert seen == ["a", "b"]


def test_spec_section_13_9_orders_reach_the_reader_in_their_order():
    rig = Rig(splits=["a"])
    rig.operator.source_event(SourceEvent("hello"))
    rig.operator.add_splits(3, parts("b", "c"))
    rig.operator.no_more_splits()
    rig.drain()
    assert rig.reader.calls == [
        "start", ("add", ["a"]), ("event", "hello"), ("add", ["b", "c"]), "no more",
    ]  # fmt: skip


def test_spec_section_13_9_the_snapshot_is_the_readers_with_splits_that_are_on_their_way():
    rig = Rig(splits=["a"])
    rig.drain()
    rig.operator.add_splits(3, parts("b"))
    assert rig.operator.snapshot(7) == parts("a", "b")
    assert rig.reader.calls[-1] == ("snapshot", 7)


def test_spec_section_13_9_checkpoints_are_told_to_the_reader():
    rig = Rig()
    rig.operator.notify_checkpoint_complete(4)
    rig.operator.notify_checkpoint_aborted(5)
    assert rig.reader.calls == ["start", ("complete", 4), ("aborted", 5)]


def test_spec_section_13_3_a_snapshot_covers_exactly_what_was_handed_out():
    rig = Rig(splits=["a"])

    def step(reader, output):
        output.collect("one")
        output.collect("two")
        reader.splits = [Part("a", 2)]

    rig.reader.script(step)
    assert rig.operator.poll() == "one"
    assert rig.operator.pending == 1
    with pytest.raises(NotBuiltError, match="between the records of one element"):
        rig.operator.snapshot(1)
    assert rig.operator.poll() == "two"
    assert rig.operator.snapshot(1) == [("a", b'{"name":"a","position":2}')]


def test_spec_section_13_6_end_of_input_is_the_end_for_ever():
    rig = Rig(splits=["a"])
    rig.run(emit(1, split="a"), END)
    assert rig.operator.is_finished
    polls = rig.reader.polls
    rig.reader.script(emit(2))
    assert (rig.operator.poll(), rig.operator.timeout()) == (None, None)
    assert rig.drain() == []
    assert rig.reader.polls == polls


def test_records_emitted_with_the_end_are_handed_out_before_it():
    rig = Rig()
    rig.reader.script(emit(1, 2, status=END))
    assert rig.drain() == [1, 2]
    assert rig.watermark == MAX_WATERMARK


@pytest.mark.parametrize("drain", [False, True])
def test_spec_section_13_6_a_stop_ends_early_and_emits_the_last_watermark_only_if_it_drains(drain):
    rig = Rig(Strategy.for_monotonous_timestamps(), ["a"])
    rig.reader.script(emit(1, 2, split="a"), emit(3, split="a"))
    assert rig.operator.poll() == 1
    rig.operator.stop(drain=drain)
    assert rig.operator.poll() == 2, "what was emitted is in the snapshot, so it is handed out"
    assert rig.operator.mode is (
        OperatingMode.SOURCE_DRAINED if drain else OperatingMode.SOURCE_STOPPED
    )
    assert rig.operator.snapshot(1) == parts("a")
    assert rig.operator.poll() is None
    assert rig.operator.is_finished
    assert rig.watermark == (MAX_WATERMARK if drain else MIN_WATERMARK)
    assert rig.split_ids == ("a",), "it is not finished"
    assert rig.finished == []


def test_the_first_stop_decides():
    rig = Rig()
    rig.operator.stop()
    rig.operator.stop(drain=True)
    rig.drain()
    assert rig.watermark == MIN_WATERMARK


def test_finished_splits_are_told_after_their_last_record_was_handed_out():
    rig = Rig(splits=["a", "b"])
    rig.reader.script(
        lambda reader, output: (emit(1, 2)(reader, output), release("a")(reader, output))[1]
    )
    assert [rig.operator.poll(), rig.finished] == [1, []]
    assert [rig.operator.poll(), rig.finished] == [2, []]
    assert (rig.drain(), rig.finished) == ([], ["a"])
    assert rig.split_ids == ("b",)


def test_at_the_end_all_splits_are_finished():
    rig = Rig(splits=["a", "b", "c"])
    rig.run(release("b"), emit(1, status=END))
    assert rig.finished == ["b", "a", "c"]
    assert rig.split_ids == ()


def test_spec_section_13_4_a_split_can_come_again_after_it_was_finished():
    rig = Rig(splits=["a"])
    rig.run(release("a"))
    rig.operator.add_splits(3, parts("a"))
    rig.drain()
    assert (rig.finished, rig.split_ids) == (["a"], ("a",))
    rig.run(release("a"))
    assert (rig.finished, rig.split_ids) == (["a", "a"], ())


def test_a_split_that_comes_again_before_its_end_was_told_stays():
    rig = Rig(splits=["a"])
    rig.reader.script(
        lambda reader, output: (emit(1, 2)(reader, output), release("a")(reader, output))[1]
    )
    assert rig.operator.poll() == 1
    rig.operator.add_splits(3, parts("a"))
    assert (rig.drain(), rig.finished) == ([2], ["a"])
    assert rig.split_ids == ("a",)


class TestErrors:
    @pytest.mark.parametrize(
        ("method", "cause"),
        [
            ("start", lambda rig: rig.operator.start()),
            ("poll_next", lambda rig: rig.drain()),
            ("is_available", lambda rig: rig.drain()),
            ("add_splits", lambda rig: None),
            ("notify_no_more_splits", lambda rig: rig.operator.no_more_splits()),
            ("handle_source_event", lambda rig: rig.operator.source_event(SourceEvent("e"))),
            ("snapshot_state", lambda rig: rig.operator.snapshot(1)),
            (
                "notify_checkpoint_complete",
                lambda rig: (rig.drain(), rig.operator.notify_checkpoint_complete(1)),
            ),
            ("close", lambda rig: (rig.drain(), rig.operator.close())),
        ],
    )
    def test_what_the_reader_raises_names_source_method_and_splits(self, method, cause):
        rig = Rig(start=False)
        original = ValueError("two\nlines")

        def broken(*_):
            raise original

        setattr(rig.reader, method, broken)

        def run():
            if method != "start":
                rig.operator.start()
                rig.operator.add_splits(3, parts("a", "b"))
            cause(rig)

        with pytest.raises(SourceError) as caught:
            run()
        error = caught.value
        assert error.summary == f"scripted failed in {method}(): ValueError: two"
        assert error.__cause__ is original
        assert error.details["during"] == method
        assert error.have == ("no split at work" if method == "start" else "splits a, b")

    def test_many_splits_are_counted(self):
        rig = Rig(splits=[f"s{n}" for n in range(8)])
        with pytest.raises(SourceError) as caught:
            rig.run(lambda reader, output: 1 / 0)
        assert caught.value.have == "splits s0, s1, s2, s3, s4 and 3 more"
        assert len(caught.value.details["splits"]) == 8

    def test_errors_of_headgate_pass_as_they_are(self):
        rig = Rig()
        original = SourceError("file f is gone")

        def broken(reader, output):
            raise original

        for _ in range(2):
            with pytest.raises(SourceError) as caught:
                rig.run(broken)
            assert caught.value is original

    def test_bytes_of_a_version_nobody_knows(self):
        rig = Rig()
        with pytest.raises(StateVersionError, match="cannot read"):
            rig.operator.add_splits(9, parts("a"))

    def test_a_serializer_that_changes_the_id_is_named(self):
        rig = Rig()
        with pytest.raises(SourceError, match="deserialized split other as a"):
            rig.operator.add_splits(3, [("other", parts("a")[0][1])])

    def test_a_serializer_that_breaks_is_named_with_the_split(self):
        class Broken:
            version = 3

            def deserialize(self, version, data):
                raise KeyError("path")

        class BrokenSource(ScriptedSource):
            split_serializer = Broken()

        rig = Rig()
        rig.operator._source = BrokenSource()
        with pytest.raises(SourceError, match=r"scripted failed in deserialize\(\)") as caught:
            rig.operator.add_splits(3, parts("a"))
        assert caught.value.have == "split a"

    def test_none_is_no_record(self):
        rig = Rig()
        with pytest.raises(SourceError, match="emitted None"):
            rig.run(lambda reader, output: output.collect(None))

    def test_a_poll_that_returns_no_status_is_named(self):
        rig = Rig()
        rig.reader.poll_next = lambda output: None
        with pytest.raises(SourceError, match=r"poll_next\(\) of scripted returned None"):
            rig.operator.poll()


class TestClosing:
    def test_close_closes_the_reader_once_and_ends_everything(self):
        rig = Rig(splits=["a"])
        rig.operator.close()
        rig.operator.close()
        assert rig.reader.calls == ["start", ("add", ["a"]), "close"]
        for call in (rig.operator.poll, rig.operator.start):
            with pytest.raises(ClosedError, match="closed"):
                call()

    def test_close_before_start_needs_no_reader(self):
        rig = Rig(start=False)
        rig.operator.close()
        assert rig.reader.calls == []

    def test_nothing_is_left_running(self):
        before = set(threading.enumerate())
        rig = Rig(Strategy.for_monotonous_timestamps(), ["a"])
        rig.run(emit(1, split="a"), MORE, NOTHING)
        rig.operator.close()
        assert set(threading.enumerate()) == before


def ended_open(*steps, has_endless_splits=False, splits=("a", "b"), drain=False):
    """Return a rig whose input has ended, after some steps, for a job that goes on later."""
    rig = Rig(Strategy.for_monotonous_timestamps(), start=False, ends_open=True)
    if has_endless_splits:
        output = OperatorOutput(Strategy.for_monotonous_timestamps(), rig.clock, at_end=min)
        rig.operator._output = output
    rig.operator.start()
    rig.operator.add_splits(3, parts(*splits))
    rig.operator.no_more_splits()
    rig.run(*steps)
    if drain:
        rig.operator.stop(drain=True)
        rig.drain()
    return rig


def test_the_end_before_a_later_job_has_the_latest_watermark_of_splits_that_ended_for_good():
    rig = ended_open(emit(70, split="a"), release("a"), emit(40, split="b"), release("b"))
    assert rig.operator.is_finished
    assert (rig.watermark, rig.operator.is_idle) == (69, True), "it holds no other reader back"


def test_the_end_before_a_later_job_has_the_least_watermark_of_splits_that_go_on():
    steps = emit(70, split="a"), release("a"), emit(40, split="b"), release("b")
    rig = ended_open(*steps, has_endless_splits=True)
    assert (rig.watermark, rig.operator.is_idle) == (39, False)
    rig = ended_open(emit(70, split="a"), release("a"), release("b"), has_endless_splits=True)
    assert (rig.watermark, rig.operator.is_idle) == (69, False), (
        "one without records does not count"
    )


def test_a_reader_without_records_is_idle_at_the_end_before_a_later_job():
    for endless in (False, True):
        rig = ended_open(has_endless_splits=endless)
        assert (rig.watermark, rig.operator.is_idle) == (MIN_WATERMARK, True)


def test_a_source_that_is_drained_ends_for_good():
    rig = ended_open(emit(70, split="a"), drain=True)
    assert not rig.operator.ends_open
