"""The commit log, its durable mark and checksums. Start at `commit_log`, then `durability`."""
