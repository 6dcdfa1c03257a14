"""A small, durable RocketMQ broker: name server, broker and gRPC services in one process."""
