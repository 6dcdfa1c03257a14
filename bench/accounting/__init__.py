"""Queries that are killed and started again, and the count of their messages."""
