"""What both transports need of the network: buffers, clocks, polling, addresses.

Start at `poll`.
"""
