"""The bulk gRPC service as a transport, and RocketMQ's public gRPC service as a channel.

Start at `transport`; `download` is the loop that reads ranges.
"""
