"""The durable store: commit log, consume queues, key index, configuration files."""
