"""The protocol between driver and tasks: messages, their channel, and heartbeats.

Decision: ADR 0005.
"""
