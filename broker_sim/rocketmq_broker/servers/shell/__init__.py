"""Carries out the engine's outcomes: replies, waits, timers, housekeeping. Start at `shell`."""
