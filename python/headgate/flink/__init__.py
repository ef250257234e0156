"""Parts of Flink's exchange that the Spark layer does not use.

Unions of gates, supersteps, emitting to a random subpartition, and reading into memory of the
caller. :mod:`headgate` exports the public names.
"""
