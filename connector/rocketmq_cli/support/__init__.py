"""What several verbs need beside a cluster: processes, Spark, attributes. Start at
`broker_process`.
"""
