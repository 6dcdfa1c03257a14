"""A whole broker on a faulty disk and a faulty network, in virtual time: start at `life`.

The engine, the storage, the shell with its timers, and the server's protocol code are the broker's
own; threads, sockets, clocks and files are replaced. `protections` switches parts of it off.
"""
