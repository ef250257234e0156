"""A clock that only a test advances."""


class Clock:
    """A function that returns seconds."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds
