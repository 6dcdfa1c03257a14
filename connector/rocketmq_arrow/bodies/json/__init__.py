"""JSON bodies become Arrow columns, uniform ones in numpy. Start at `reader`."""
