"""TLS on non-blocking sockets, and what a server speaks that hung up. Start at `socket`."""
