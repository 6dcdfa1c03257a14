"""The server of RocketMQ's TCP protocol. Start at `server`."""
