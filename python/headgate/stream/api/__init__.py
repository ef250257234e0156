"""The builder of streaming jobs: streams, functions, and the graph that they describe. Decision: ADR 0034."""
