"""Writes with `delivery=transactional`: half messages, a stored decision, their commit. Start at
`commit`.
"""
