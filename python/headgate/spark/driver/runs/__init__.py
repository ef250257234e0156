"""Runs of pipelined exchanges as state machines. No sockets, no threads, no Spark.

Only :mod:`headgate.spark.driver.coordinator` and the packages beside it import this.
"""
