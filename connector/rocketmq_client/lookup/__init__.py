"""Single messages by key or id, found through the brokers' key index.

Start reading at `messages`.
"""
