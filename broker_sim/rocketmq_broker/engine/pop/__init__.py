"""Pop consumption: pops in flight, acknowledgements, orderly pops, revival.

Start reading at `registry`, then `pop`.
"""
