"""Which member reads which queue: the six strategies, and rebalance.

Pure; start at `strategies`.
"""
