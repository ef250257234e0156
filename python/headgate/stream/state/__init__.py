"""Keyed state of one task, addressed by batches of keys, and its snapshots."""
