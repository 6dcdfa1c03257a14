"""Carries out what the engine decides: answers, waits, timers, housekeeping. Start at `shell`."""
