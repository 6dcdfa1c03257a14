"""What verbs and the status page know of consumer groups. Start at `lag`."""
