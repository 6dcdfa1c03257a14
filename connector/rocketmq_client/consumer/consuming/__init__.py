"""Calls of the listener, concurrent and in order, and the effect of its results.

Start at `consumption`.
"""
