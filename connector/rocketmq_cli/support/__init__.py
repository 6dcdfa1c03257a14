"""Processes and Spark sessions for several verbs. Start at `broker_process`."""
