"""Pops from assigned queues and the acknowledgement of popped messages. Start at `puller`."""
