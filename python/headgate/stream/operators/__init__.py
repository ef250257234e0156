"""The operators of a task: what a batch, a watermark, a timer and a checkpoint mean to each. Decision: ADR 0034."""
