"""A member's life: heartbeats, owned queues, locks. Start at `client_instance`, then
`owned_queues`.
"""
