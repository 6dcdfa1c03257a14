"""Consumer groups: settings, members, committed offsets, queue locks.

Start at `consumer_groups`.
"""
