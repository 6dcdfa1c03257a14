"""RocketMQ's protocol as values: bytes in, values out, and back. No I/O, no clock, no threads."""
