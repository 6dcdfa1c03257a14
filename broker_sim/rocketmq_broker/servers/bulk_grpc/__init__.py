"""bulk_grpc."""
