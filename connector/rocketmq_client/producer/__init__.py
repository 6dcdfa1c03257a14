"""Sends: batches, transactions, delayed messages, messages sent back. Start at `producer`."""
