"""Streams that pop messages and acknowledge them (`consumeMode=pop`). Start at `reader`."""
