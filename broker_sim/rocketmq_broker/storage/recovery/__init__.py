"""Opens a store after a clean end or a crash. Start at `recover`."""
