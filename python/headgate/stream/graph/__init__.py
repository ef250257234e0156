"""The parts of a job: operators and the edges between them, functions of users, and the stages of tasks. Decision: ADR 0034."""
