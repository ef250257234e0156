"""The runs of a process as a user sees them, and the displays. It knows nothing of Spark.

Decision: ADR 0040.
"""
