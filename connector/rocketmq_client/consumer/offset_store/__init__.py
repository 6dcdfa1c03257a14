"""offset_store."""
