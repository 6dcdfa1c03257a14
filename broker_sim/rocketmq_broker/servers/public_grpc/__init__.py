"""RocketMQ's public gRPC service over the broker's own requests. Start at `calls`."""
