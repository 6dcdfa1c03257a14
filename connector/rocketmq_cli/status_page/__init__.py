"""A cluster's status as web pages and metrics: read only, without scripts. Start at `web`."""
