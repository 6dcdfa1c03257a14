"""Pure decisions: bounds and limits become offsets, offsets become ranges.

Start at `micro_batch`.
"""
