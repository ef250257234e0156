"""What driver and tasks say to each other: messages, the channel they travel on, heartbeats.

Decision: ADR 0005.
"""
