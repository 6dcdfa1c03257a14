"""RocketMQ's TCP protocol: frames, headers, and the conversation on one connection. Start at
`session`.
"""
