"""Output for people and for programs: tables, JSON lines, progress. Start at `output`."""
