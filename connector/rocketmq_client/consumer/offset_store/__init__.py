"""Consumed offsets before they are committed, and where a new member starts. Start at
`offset_table`.
"""
