"""Sends and pulls, filters, delays, timers and retries. Start at `sending` and `pulling`."""
