"""Sources and sinks behind Spark's Python Data Source API."""
