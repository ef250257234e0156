"""The coordinator of checkpoints and the valve of watermarks, against naive models, with random events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK
from headgate.stream.job.checkpoints import (
    Abort,
    CheckpointConfig,
    CheckpointCoordinator,
    Complete,
    FailJob,
    Trigger,
)
from headgate.stream.runtime.watermark_valve import StatusWatermarkValve

TASKS = ((0, 0), (0, 1), (1, 0))
FIRST = 7
events = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 120)),
    st.tuples(st.just("acknowledge"), st.sampled_from(TASKS), st.integers(-1, 1)),
    st.tuples(st.just("decline"), st.integers(-1, 1)),
    st.tuples(st.just("end"), st.integers(-1, 1), st.booleans()),
    st.tuples(st.just("request"), st.sampled_from([None, "a", "b"]), st.booleans()),
)


class Model:
    """The results of the effects, kept apart from the coordinator."""

    def __init__(self, config):
        self.config, self.next, self.pending, self.missing = config, FIRST, None, set()
        self.asked, self.failures, self.over = [], 0, False
        self.is_committing = False
        self.started = self.ended = None

    @property
    def is_waiting(self):
        """True while tasks have to acknowledge the pending checkpoint."""
        return self.pending is not None and not self.is_committing

    def take(self, effects, now):
        """Take effects in their order, and check that each is allowed."""
        for effect in effects:
            assert not self.over
            if isinstance(effect, Trigger):
                assert self.pending is None
                assert effect.checkpoint == self.next
                if self.asked:
                    assert (effect.savepoint, effect.stop) == self.asked.pop(0)
                else:
                    assert (effect.savepoint, effect.stop) == (None, False)
                    self.check_due(now)
                self.next += 1
                self.pending, self.missing, self.started = effect, set(TASKS), now
            elif isinstance(effect, Complete):
                assert effect.trigger == self.pending
                assert not self.missing
                assert set(effect.states) == set(TASKS)
                assert all(state == effect.checkpoint for state in effect.states.values())
                self.is_committing = True
            elif isinstance(effect, Abort):
                assert effect.trigger == self.pending
                if effect.trigger.savepoint is None:
                    self.failures += 1
                    if effect.trigger.stop and self.failures <= self.config.tolerable_failures:
                        self.asked.insert(0, (None, True))
                self.pending, self.ended, self.is_committing = None, now, False
            else:
                assert isinstance(effect, FailJob)
                assert self.failures > self.config.tolerable_failures
                self.over = True
        # Nothing that was asked for waits without a reason.
        assert self.over or not self.asked or self.pending is not None

    def check_due(self, now):
        config = self.config
        assert config.interval is not None
        assert now >= (0 if self.started is None else self.started) + config.interval
        assert self.ended is None or now >= self.ended + config.min_pause


@settings(max_examples=400, deadline=None)
@given(
    interval=st.sampled_from([None, 10, 50]),
    timeout=st.sampled_from([30, 1000]),
    pause=st.sampled_from([0, 20]),
    tolerable=st.integers(0, 2),
    happening=st.lists(events, max_size=60),
)
def test_checkpoints_follow_the_model(interval, timeout, pause, tolerable, happening):
    config = CheckpointConfig(interval, timeout, pause, tolerable)
    model, now = Model(config), 0
    coordinator = CheckpointCoordinator(config, TASKS, FIRST, now)
    for name, *arguments in happening:
        about = model.next - 1
        if name == "time":
            now += arguments[0]
            late = model.is_waiting and now >= model.started + timeout
            effects = coordinator.on_time(now)
            assert late == any(isinstance(effect, Abort) for effect in effects)
        elif name == "acknowledge":
            task, offset = arguments
            number = about + offset
            if model.is_waiting and offset == 0:
                model.missing.discard(task)
            effects = coordinator.on_acknowledged(task, number, number)
            is_last = model.is_waiting and not model.missing
            assert [type(effect) for effect in effects] == [Complete] * is_last
        elif name == "end":
            effects = end(coordinator, model, about, *arguments, now)
        elif name == "decline":
            expected = model.is_waiting and arguments[0] == 0
            effects = coordinator.on_declined(about + arguments[0], "planned", now)
            assert any(isinstance(effect, Abort) for effect in effects) == expected
        else:
            savepoint, stop = arguments
            if model.over:
                continue
            model.asked.append((savepoint, stop))
            effects = coordinator.request(savepoint, stop=stop, now=now)
        model.take(effects, now)
        assert coordinator.next_id == model.next
        assert coordinator.pending == (model.pending and model.pending.checkpoint)
    given_up = coordinator.close("over")
    waiting = [model.pending.savepoint] if model.is_waiting else []
    if not model.over:
        waiting += [savepoint for savepoint, _ in model.asked]
        assert [abort.trigger.savepoint for abort in given_up] == waiting
    assert coordinator.close("over") == []
    assert coordinator.on_time(now + 10_000) == []
    assert coordinator.due is None


def end(coordinator, model, about, offset, is_written, now):
    """End a checkpoint that is being committed."""
    is_ended = model.is_committing and offset == 0
    if not is_written:
        effects = coordinator.on_failed(about + offset, "planned", now)
        assert is_ended == any(isinstance(effect, Abort) for effect in effects)
        return effects
    if is_ended:
        model.failures, model.over = 0, model.pending.stop
        model.pending, model.ended, model.is_committing = None, now, False
    return coordinator.on_completed(about + offset, now)


class ValveModel:
    """The smallest of the channels that are active and not behind; the greatest once all are idle.

    Those that have ended do not count, until all have.
    """

    def __init__(self, channels):
        self.marks, self.idle = [MIN_WATERMARK] * channels, [False] * channels
        self.output = MIN_WATERMARK

    def advance(self, channel, mark):
        self.marks[channel] = max(self.marks[channel], mark)
        self.idle[channel] = False

    def set_idle(self, channel):
        if not self.idle[channel]:
            self.idle[channel] = True

    @property
    def open(self):
        return [n for n, mark in enumerate(self.marks) if mark < MAX_WATERMARK]

    @property
    def is_idle(self):
        return self.open != [] and all(self.idle[n] for n in self.open)

    def combined(self):
        # One that was idle and is behind holds nobody up: its rows are late anyway.
        active = [
            self.marks[n] for n in self.open if not self.idle[n] and self.marks[n] >= self.output
        ]
        if not self.open:
            self.output = MAX_WATERMARK
        elif active:
            self.output = max(self.output, min(active))
        elif self.is_idle:
            self.output = max(self.output, *(self.marks[n] for n in self.open))
        return self.output


@settings(max_examples=400, deadline=None)
@given(
    channels=st.integers(1, 4),
    happening=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.one_of(st.none(), st.integers(0, 20), st.integers(0, 20), st.just(MAX_WATERMARK)),
        ),
        max_size=60,
    ),
)
def test_the_valve_follows_the_model(channels, happening):
    valve, model = StatusWatermarkValve(channels), ValveModel(channels)
    for number, mark in happening:
        channel = number % channels
        if channel not in model.open:
            continue
        before = model.output
        if mark is None:
            model.set_idle(channel)
            grew = valve.set_idle(channel)
        else:
            model.advance(channel, mark)
            grew = valve.advance(channel, mark)
        assert valve.watermark == model.combined()
        assert grew == (model.output > before)
        assert valve.is_idle == model.is_idle
