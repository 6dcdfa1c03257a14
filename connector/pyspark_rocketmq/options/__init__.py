"""Options as users write them, checked once. Start at `read_table` for what exists, at `parse` for
the value it becomes.
"""
