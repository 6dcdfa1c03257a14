"""Takes over a data directory that RocketMQ wrote. Start at `adopt`."""
