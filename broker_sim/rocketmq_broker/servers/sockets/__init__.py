"""Listening sockets, TLS and the buffered output of connections. Start at `listener`."""
