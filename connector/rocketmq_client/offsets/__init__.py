"""Bounds of queues, offsets by time, commits, and a thread that watches for new messages.

Start reading at `bounds` and `end_offset_watcher`.
"""
