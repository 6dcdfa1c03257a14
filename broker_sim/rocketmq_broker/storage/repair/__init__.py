"""Verification and repair of a damaged store (`rmq fsck`).

Start at `damage_survey`, then `repair`.
"""
