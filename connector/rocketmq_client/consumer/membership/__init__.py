"""A member's place in its group: heartbeats, rebalance, owned queues, their locks and offsets.

Start at `client_instance`, then `owned_queues`.
"""
