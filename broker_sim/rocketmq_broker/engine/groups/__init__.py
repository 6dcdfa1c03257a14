"""Consumer groups and clients: settings, members online, committed offsets, queue locks.

Start reading at `consumer_groups`.
"""
