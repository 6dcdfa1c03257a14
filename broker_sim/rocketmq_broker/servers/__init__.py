"""The servers: TCP remoting, and gRPC with a bulk and a public service, over one shell.

Start at `start`.
"""

import os

# Set before gRPC is imported. With gRPC's fork support, a process with this broker that forks and
# runs Python code before it executes another program, as PySpark starts Java, aborts in gRPC's
# handlers (1 in 8 on two busy cores). No forked copy of the broker serves.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
