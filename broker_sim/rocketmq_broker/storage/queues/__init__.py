"""Consume queues: where each message is. Start at `consume_queue`, then `queue_table`."""
