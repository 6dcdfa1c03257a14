"""Verifies and repairs a damaged store (`rmq fsck`). Start at `inspection`, then
`damage_survey` and `repair`.
"""
