"""Writes: Spark's rows become messages. Start at `writers` for Spark's calls, at `task` for what a
worker does.
"""
