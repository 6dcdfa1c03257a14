"""When a queue is pulled from, and the pulled messages that wait to be consumed.

Start at `process_queue`.
"""
