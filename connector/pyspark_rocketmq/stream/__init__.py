"""Streaming reads: `reader` passes Spark's calls to one of three drivers. Start at `driver`, the
contract that they answer; `admission` decides how much each micro-batch takes.
"""
