"""In Spark's tasks: the bodies of producers and consumers, and their way to the coordinator.

Decision: ADR 0010.
"""
