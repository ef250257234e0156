"""``python -m headgate top``: the record of runs in a terminal, from the live page or from a file (ADR 0041)."""
