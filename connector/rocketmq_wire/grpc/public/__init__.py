"""RocketMQ's public gRPC service: messages, pops, status codes. Start at `messages`."""
