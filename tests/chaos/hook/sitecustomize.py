"""Imported by every Python of a chaos session as it starts: SIGUSR1 writes all stacks to stderr."""

import faulthandler
import signal

faulthandler.register(signal.SIGUSR1, all_threads=True)
