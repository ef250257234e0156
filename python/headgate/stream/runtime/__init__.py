"""A task of a streaming job: its loop, its input, its chain of operators and its outputs. Decision: ADR 0034."""
