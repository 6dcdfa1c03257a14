"""Pop consumption: messages in flight, acknowledgement, revival.

Start at `registry`, then `pop`.
"""
