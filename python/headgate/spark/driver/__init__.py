"""On the driver: who produces, who consumes, what was lost; one coordinator per application.

Decisions: ADR 0003, ADR 0010.
"""
