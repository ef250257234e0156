"""What a job consists of: operators and the edges between them, functions of users, and the stages of tasks. Decision: ADR 0034."""
