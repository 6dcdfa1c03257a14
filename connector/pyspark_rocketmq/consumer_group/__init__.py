"""consumer_group."""
