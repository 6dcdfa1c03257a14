"""Consume queues: the log position of each message of a queue. Start at `consume_queue`, then
`queue_table`.
"""
