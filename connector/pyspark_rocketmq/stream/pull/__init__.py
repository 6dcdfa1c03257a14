"""The driver of a stream that owns all of its queues and pulls by offset. Start at `driver`."""
