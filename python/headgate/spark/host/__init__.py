"""The host: one process per executor, which serves what producers kept there to executors of other hosts.

Decision: ADR 0022.
"""
