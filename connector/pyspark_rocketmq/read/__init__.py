"""Batch reads, and the task that reads ranges for batches and streams alike. Start at
`batch_reader`, then `task`.
"""
