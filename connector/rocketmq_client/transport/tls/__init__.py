"""TLS on non-blocking sockets, and why a server hung up. Start at `socket`."""
