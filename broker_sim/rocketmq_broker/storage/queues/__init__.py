"""Consume queues: where each message of a queue is in the log. Start at `consume_queue`."""
