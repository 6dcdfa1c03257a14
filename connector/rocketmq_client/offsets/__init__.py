"""Where queues begin and end, and the offsets that groups commit. Start at `bounds`."""
