"""The calls of our gRPC service. Start at `calls`."""
