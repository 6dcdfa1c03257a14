"""Sends, pulls, filters, delayed messages and retries. Start at `sending` and `pulling`."""
