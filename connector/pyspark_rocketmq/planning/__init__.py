"""Pure decisions: `micro_batch` and `batch` decide what is read, `split` divides it into tasks,
`checkpoint` stores the offsets. Start at `micro_batch`.
"""
