"""The durable store. Start at `store`, then `log` and `queues`; `recovery` opens a store."""
