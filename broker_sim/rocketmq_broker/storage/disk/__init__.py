"""The only code that touches files, and the small files it keeps whole. Start at `files`."""
