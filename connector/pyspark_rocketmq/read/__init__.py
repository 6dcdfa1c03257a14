"""Batch reads, and the task that reads ranges for batches and streams. Start at
`batch_reader`, then `task`.
"""
