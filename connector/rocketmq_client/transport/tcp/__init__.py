"""RocketMQ's TCP protocol as a transport.

Start at `transport`; a download is driven by `download`.
"""
