"""Explains how the exchanges of a DataFrame will run, from their plans: ``explain()``."""
