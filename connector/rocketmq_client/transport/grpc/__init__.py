"""grpc."""
