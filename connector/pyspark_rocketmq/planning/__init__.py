"""Pure decisions: no clock, no network. `micro_batch` and `batch` decide what is read, `split` divides
it into tasks, `checkpoint` writes it down; start at `micro_batch`.
"""
