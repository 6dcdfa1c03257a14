"""Where a group's committed offsets are stored: at the brokers, or in a broadcasting member's file.

Start at `offset_store`; `local_file` is the file.
"""
