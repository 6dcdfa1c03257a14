"""Verifies and repairs a damaged store (`rmq fsck`). Start at `inspection`, then `repair`."""
