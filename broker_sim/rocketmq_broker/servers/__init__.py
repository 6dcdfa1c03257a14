"""Bytes <-> engine: the TCP remoting server and the gRPC server."""

import os

# Before gRPC is imported: with its fork support on, a process that has this broker in it and starts
# another with code of its own in between, as PySpark starts Java, loses some of them to an abort
# within gRPC's handlers (1 in 8 on two busy cores). A copy of the broker is never served from.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
