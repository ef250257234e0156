"""The live page: a web server in a thread of the driver, which shows the record of runs (ADR 0041)."""
