"""What both transports need of the network: buffers, clocks, addresses.

Start at `buffers`.
"""
