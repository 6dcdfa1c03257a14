"""Disturbs queries in every way at hand, then counts their messages: start at `scenarios`."""
