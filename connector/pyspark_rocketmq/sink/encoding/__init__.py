"""Rows to write as send requests: columns, queues, keys, batches.

Start at `plan`, then `batches`.
"""
