"""The driver of a stream that shares its queues with a consumer group (`joinGroup`). Start at
`driver`.
"""
