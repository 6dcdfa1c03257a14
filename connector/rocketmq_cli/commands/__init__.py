"""The verbs of `rmq`, one module each, loaded when the verb is named. Start at `topic` for a plain
one.
"""
