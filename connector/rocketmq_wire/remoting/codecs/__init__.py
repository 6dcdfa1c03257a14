"""Requests and replies as header fields and bodies, one module per kind of request. Start at
`fields`.
"""
