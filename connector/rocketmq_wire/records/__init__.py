"""Stored messages as bytes: records, batches, properties, ids. Start at `record`."""
