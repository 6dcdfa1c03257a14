"""What the jobs in spark_jobs share: arguments, checks, sessions, failures.

Start at `arguments`.
"""
