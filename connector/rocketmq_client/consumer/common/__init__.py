"""The parts that all consumers share: settings, messages, the listener's contract, the I/O thread.

Start at `settings`.
"""
