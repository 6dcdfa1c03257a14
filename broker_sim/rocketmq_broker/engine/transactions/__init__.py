"""Half messages: stored apart, delivered when committed, and checked with their producer.

Start reading at `half_messages`.
"""
