"""RocketMQ's public gRPC service, translated to the broker's own requests. Start at `calls`."""
