"""Questions of the driver to Spark's scheduler: slots, jobs, the fate of tasks. Everything here may block."""
