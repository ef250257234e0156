"""Authenticated connections between a job's coordinator and its workers."""
