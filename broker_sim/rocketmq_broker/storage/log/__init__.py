"""The commit log: records in files, and how far they are durable. Start at `commit_log`, then
`durability`.
"""
