"""The coordinator of a streaming job, its workers, and its checkpoints. Decision: ADR 0034."""
