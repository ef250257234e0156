"""Sources and sinks as Spark's Python Data Source API has them."""
