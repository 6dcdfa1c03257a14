"""popping."""
