"""JSON bodies become Arrow columns, those that are built alike in numpy. Start at `reader`."""
