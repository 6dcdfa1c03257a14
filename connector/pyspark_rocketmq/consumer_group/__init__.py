"""The committed offsets of a query's consumer group at the broker. Start at `commit`."""
