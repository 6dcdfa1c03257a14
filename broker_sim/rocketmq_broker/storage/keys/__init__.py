"""The key index: from a key's hash to positions in the log. Start at `key_index`."""
