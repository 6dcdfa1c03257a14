"""Messages parsed from lines and printed as lines. Start at `records`, or `sending` to write."""
