"""Bodies of pull answers become record batches, without an object per message.

Start at `decoder`.
"""
