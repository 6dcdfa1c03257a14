"""JSON bodies of messages become typed columns. Start at `reader`."""
