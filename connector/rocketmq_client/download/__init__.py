"""The rules of a download: which pulls to send, what has arrived, when to give up. Pure.

Start at `contract`, then `fetch_window` (TCP) or `range_stream` (gRPC). The loops that drive them
are `transport.tcp.download` and `transport.grpc.download`.
"""
