"""Our gRPC service: typed requests as protobuf messages, large bodies uncopied.

Start at `mapping`.
"""
