"""The two transports, RocketMQ's TCP protocol and gRPC, behind one contract.

Start at `contract`; then `tcp.transport` and `grpc.transport`.
"""
