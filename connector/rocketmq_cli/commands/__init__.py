"""The verbs of `rmq`, one module each, loaded when named. Start at `topic` for a plain one."""
