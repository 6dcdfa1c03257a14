"""Processes, Spark sessions and attributes for several verbs. Start at
`broker_process`.
"""
