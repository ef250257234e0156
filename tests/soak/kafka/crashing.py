"""A committer of Kafka whose calls of its producer are steps, at which a test can crash it."""

from headgate.sink.kafka import committer as committers

#: The calls of a producer that change something at the broker.
CALLS = (
    *("init_transactions", "begin_transaction", "produce", "flush"),
    *("send_offsets_to_transaction", "commit_transaction", "abort_transaction"),
)


class Steps:
    """Passes calls on to a producer; ``step`` is called before and after each of :data:`CALLS`."""

    def __init__(self, producer, step):
        self._producer, self._step = producer, step

    def __getattr__(self, name):
        call = getattr(self._producer, name)
        if name not in CALLS:
            return call

        def counted(*args, **options):
            self._step(f"before {name}")
            result = call(*args, **options)
            self._step(f"after {name}")
            return result

        return counted


def crashing(committer, step):
    """Have a committer call ``step`` around the calls of its producers."""
    assert isinstance(committer, committers.KafkaCommitter)
    open_, made = committer._open, committers.Producing

    class Counted(made):
        def __init__(self, properties):
            super().__init__(properties)
            self.producer = Steps(self.producer, step)

    def opened():
        committers.Producing = Counted
        try:
            return open_()
        finally:
            committers.Producing = made

    committer._open = opened
    return committer
