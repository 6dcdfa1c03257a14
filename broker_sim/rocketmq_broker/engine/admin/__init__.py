"""Requests of administrators' tools: settings, statistics, groups, members, messages.

Start reading at `administration`.
"""
