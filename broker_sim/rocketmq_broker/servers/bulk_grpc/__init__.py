"""The bulk gRPC service, this project's own. Start at `calls`."""
