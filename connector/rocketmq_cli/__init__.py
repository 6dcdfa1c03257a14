"""The `rmq` command."""
