"""Fuzzing: the entry points that read bytes of a peer, a file or a user, with a kept corpus.

Start reading at `targets`; `run` is the verb, `worker` fuzzes one target in its own process.
"""
