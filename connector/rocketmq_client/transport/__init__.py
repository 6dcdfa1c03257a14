"""Sockets below, requests above: RocketMQ's TCP protocol and gRPC answer one contract. Start at
`contract`.
"""
