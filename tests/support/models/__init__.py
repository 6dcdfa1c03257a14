"""Models of what a broker promises; tests hold them against an engine after every step.

Start reading at `log_model`. The fakes beside this folder stand in for a broker: `simulated_queue`
(one queue's pulls, in virtual time), `scripted_broker` (a script over real sockets), `fake_shell`
(a server's engine), `fake_cluster` (a client's cluster). `engines` is the real engine in memory.
"""
