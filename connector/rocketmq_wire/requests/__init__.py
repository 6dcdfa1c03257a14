"""One frozen class per request and reply, in modules named by what the requests are about.

Start at `contract`.
"""
