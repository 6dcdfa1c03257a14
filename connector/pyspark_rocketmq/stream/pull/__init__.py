"""The driver of a stream that reads all selected queues by offset, and its discovery of new queues.
Start at `driver`.
"""
