"""The process of the watchdog: ``python -m tests.kit.timekeeper PID MARK``.

It reads ``arm SECONDS FILE`` and ``disarm`` from its standard input until the input is closed. When
the time is over, it writes the stacks of all processes of the test to the file and sends a signal.
If the test's process does not handle the signal, it is aborted.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from tests.kit.stacks import of_test

#: Signal to process PID when the time is over.
SIGNAL = signal.SIGUSR2
#: Seconds within which process PID must answer with another command.
GRACE = 15.0


def keep_time(pid, mark):
    """Serve until the other end closes."""
    rest, deadline, report = b"", None, None
    while True:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([0], [], [], wait)[0]:
            bark(pid, mark, report)
            deadline = None
            continue
        data = os.read(0, 4096)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            words = line.decode().split(" ", 2)
            deadline, report = None, None
            if words[0] == "arm":
                deadline, report = time.monotonic() + float(words[1]), Path(words[2])


def bark(pid, mark, report):
    """Write the stacks, signal the test's process, and abort it if it does not answer."""
    text = of_test(pid, mark)
    report.write_text(text, encoding="utf-8")
    os.kill(pid, SIGNAL)
    if not select.select([0], [], [], GRACE)[0]:
        sys.stderr.write(f"\nwatchdog: process {pid} answers no signal\n{text}\n")
        os.kill(pid, signal.SIGABRT)


if __name__ == "__main__":
    # Ctrl-C is for the tests. This process ends when they do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_time(int(sys.argv[1]), sys.argv[2])
