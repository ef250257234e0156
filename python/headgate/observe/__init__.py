"""What can be seen of the runs of a process, and what shows it. It knows nothing of Spark.

Decision: ADR 0040.
"""
