"""Messages on the command line, parsed from lines and printed as lines. Start at `records` for
reading, at `sending` for writing.
"""
