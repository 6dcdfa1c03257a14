"""RocketMQ's TCP protocol: frames, headers, and the requests and replies on one connection.

Start at `session`.
"""
