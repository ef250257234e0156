"""What the driver knows of kept exchanges, which Spark schedules without it."""
