"""The coordinator of a streaming job, its workers, and its checkpoints."""
