"""Columns of messages become batch bodies or laid-out records. Start at `rows`."""
