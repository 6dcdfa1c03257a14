"""Half messages: stored apart, delivered at their commit, checked with their producer. Start at
`half_messages`.
"""
