"""What administrators' tools ask: settings, statistics, groups, clients.

Start at `administration`.
"""
