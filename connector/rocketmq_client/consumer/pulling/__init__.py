"""When a queue is pulled from, and the pulled messages that wait to be consumed.

Start at `pull_control`.
"""
