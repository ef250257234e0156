"""On the driver: what it knows of exchanges, and the server that tasks ask; one per application.

Decision: ADR 0044, which replaces ADR 0010.
"""
