"""Pops from assigned queues, the consumption of popped messages, and their acknowledgements.

Start at `puller`, then `consumption`.
"""
