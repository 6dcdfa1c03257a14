"""Which messages a subscription selects: tags and SQL92. Start at `tags`."""
