"""Message bodies become typed columns. Start at `read`, then `json.reader`."""
