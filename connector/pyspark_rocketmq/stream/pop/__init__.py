"""The driver of a stream that pops (consumeMode=pop), and the partitions that carry popped records.
Start at `driver`.
"""
