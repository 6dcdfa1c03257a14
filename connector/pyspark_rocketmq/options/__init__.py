"""Options as users write them, checked once. Start at a table (`read_table`, `connection_table`,
`sink_table`) for what exists, at `values` for what it becomes.
"""
