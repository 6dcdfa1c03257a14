"""When a queue is pulled from, and the messages that wait to be consumed.

Start at `pull_control`.
"""
