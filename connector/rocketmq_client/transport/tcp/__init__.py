"""RocketMQ's TCP protocol as a transport.

`transport` is the contract; `download` is the loop that reads ranges. Both send by
`broker_requests` over the connections of `exchange`.
"""
