"""The broker's rules: they turn a request and the time into an outcome, without network or clock.

Start reading at `engine`, which gathers the rules; `tables` holds what they share.
"""
