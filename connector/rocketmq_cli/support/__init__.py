"""Processes, Spark sessions and orders for several verbs. Start at
`broker_process`.
"""
