"""What the driver asks of Spark's scheduler: slots, jobs, the fate of tasks. Everything here may block."""
