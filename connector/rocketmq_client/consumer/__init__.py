"""RocketMQ's consumers: push, pull, lite pull and pop, and the batch member of Spark's `joinGroup`.

Start at `push`, then `group_consumer`.
"""
