"""Messages on the command line: lines in, lines out. Start at `records` for reading, at `sending`
for writing.
"""
