"""Addresses of brokers, and the replica that serves a queue's pulls. Pure.

Start reading at `routes`.
"""
