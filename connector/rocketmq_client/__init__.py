"""Sockets, routes, pulls, sends and consumer groups over RocketMQ's protocol."""
