"""Accounts with their rights, and TLS certificates, both from files. Start at `guard`."""
