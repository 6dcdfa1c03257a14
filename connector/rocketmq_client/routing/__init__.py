"""Which broker serves a queue, and which replica a pull asks. Start at `routes`."""
