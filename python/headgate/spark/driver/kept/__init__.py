"""The driver's knowledge of kept exchanges, which Spark schedules without it."""
