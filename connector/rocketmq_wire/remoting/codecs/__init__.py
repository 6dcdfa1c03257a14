"""Requests and replies as header fields and bodies, one module per module of `requests`.

Start at `layouts`.
"""
