"""A member's place in its group: heartbeats, rebalance, owned queues and their locks.

Start at `client_instance`, then `owned_queues`.
"""
