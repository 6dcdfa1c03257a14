"""Listening sockets, TLS on them, and what waits to be written. Start at `listener`."""
