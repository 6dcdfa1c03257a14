"""The durable store: commit log, consume queues, key index, configuration files. Start at `store`,
then `log` and `queues`; `recovery` opens a store, `repair` repairs one.
"""
