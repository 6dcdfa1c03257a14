"""The messages of the gRPC services: `bulk` is ours, `public` is RocketMQ's own. Start at
`bulk.mapping`.
"""
