"""The report: what the record has of some runs as one HTML file that needs nothing else, or as JSON.

Decision: ADR 0040.
"""
