"""Streaming reads: Spark's calls go from a reader to a driver. Start at `reader`."""
