"""The commit log: its files, its durable mark and its checksums. Start at `commit_log`, then
`durability`.
"""
