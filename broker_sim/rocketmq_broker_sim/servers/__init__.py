"""Bytes <-> engine: the TCP remoting server and the gRPC server."""
