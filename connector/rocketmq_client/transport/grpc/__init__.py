"""The gRPC services as a transport. Start at `transport`."""
