"""Calls of the listener, concurrent and in order, and what its answers mean.

Start at `concurrent`.
"""
