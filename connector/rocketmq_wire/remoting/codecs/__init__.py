"""Requests and replies as header fields and bodies; the modules are named as those of `requests`.

The two requests of transactions are in `messages`. Start at `layouts`.
"""
