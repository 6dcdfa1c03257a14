"""Sends: single messages, batches, half messages, delayed messages, messages sent back.

Start reading at `producer`, and at `transactional` for transactions.
"""
